/* A stand-in for NVIDIA's libnvidia-ml.so.1: it answers from the text file that SIMULATED_NVML names.
 *
 * The file is read again for every call, so a test can change the machine while a program looks at it:
 *   driver|VERSION|CUDA AS A NUMBER|RESULT OF INIT
 *   gpu|UUID|NAME|BYTES|COMPUTE MODE|MIG ON|CAPABILITY AS A NUMBER|RESULT OF EVERY QUESTION|RESULT FOR MEMORY|USED
 *   slice|UUID|NAME|BYTES|GPU INSTANCE|COMPUTE INSTANCE        (of the gpu above it)
 *   load|UUID|PER CENT BUSY|MILLIWATT|PCIE IN|PCIE OUT|NVLINK IN|NVLINK OUT|WHETHER IT COUNTS THEM
 *   process|UUID|PID                                            (it runs on this gpu or slice)
 * Traffic is in bytes per second; an older driver does not count it.
 * Results are NVML's: 0 success, 3 not supported, 4 no permission, 9 driver not loaded, 15 GPU is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 64, OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7 };

typedef struct {
    int is_slice, card, mode, mig, capability, result, memory_result, gpu_instance, compute_instance;
    unsigned long long bytes, used;
    char uuid[96], name[96];
} Unit;

typedef struct {
    char uuid[96];
    int busy, milliwatt, counts;
    unsigned long long pcie_in, pcie_out, nvlink_in, nvlink_out;
} Load;

typedef struct {
    char uuid[96];
    unsigned pid;
} Process;

static Unit units[MOST];
static Load loads[MOST];
static Process processes[MOST];
static int count, num_loads, num_processes, cuda, init_result;
static char version[80];

static int look(void) {
    char line[512];
    const char *path = getenv("SIMULATED_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    count = num_loads = num_processes = 0, init_result = 9;
    if (!file) return 9;
    int card = -1;
    while (fgets(line, sizeof line, file) && count < MOST) {
        char *rest = line, *part, *field[10] = {0};
        int fields = 0;
        line[strcspn(line, "\n")] = 0;
        while ((part = strsep(&rest, "|")) && fields < 10) field[fields++] = part;
        if (!strcmp(field[0], "driver") && fields >= 4) {
            snprintf(version, sizeof version, "%s", field[1]);
            cuda = atoi(field[2]), init_result = atoi(field[3]);
        } else if (!strcmp(field[0], "load") && fields >= 9 && num_loads < MOST) {
            Load *load = &loads[num_loads++];
            snprintf(load->uuid, sizeof load->uuid, "%s", field[1]);
            load->busy = atoi(field[2]), load->milliwatt = atoi(field[3]);
            load->pcie_in = strtoull(field[4], NULL, 10), load->pcie_out = strtoull(field[5], NULL, 10);
            load->nvlink_in = strtoull(field[6], NULL, 10), load->nvlink_out = strtoull(field[7], NULL, 10);
            load->counts = atoi(field[8]);
        } else if (!strcmp(field[0], "process") && fields >= 3 && num_processes < MOST) {
            Process *process = &processes[num_processes++];
            snprintf(process->uuid, sizeof process->uuid, "%s", field[1]);
            process->pid = (unsigned)atoi(field[2]);
        } else if (fields >= 6) {
            Unit *unit = &units[count++];
            memset(unit, 0, sizeof *unit);
            unit->is_slice = !strcmp(field[0], "slice");
            card += !unit->is_slice;
            unit->card = card;
            snprintf(unit->uuid, sizeof unit->uuid, "%s", field[1]);
            snprintf(unit->name, sizeof unit->name, "%s", field[2]);
            unit->bytes = strtoull(field[3], NULL, 10);
            if (unit->is_slice) {
                unit->gpu_instance = atoi(field[4]), unit->compute_instance = atoi(field[5]);
            } else if (fields >= 9) {
                unit->mode = atoi(field[4]), unit->mig = atoi(field[5]), unit->capability = atoi(field[6]);
                unit->result = atoi(field[7]), unit->memory_result = atoi(field[8]);
                unit->used = fields > 9 ? strtoull(field[9], NULL, 10) : 0;
            }
        }
    }
    fclose(file);
    return init_result;
}

/* A handle is the place of a unit, from 1 on. */
static Unit *unit_of(void *handle) {
    look();
    long place = (long)handle;
    return place >= 1 && place <= count ? &units[place - 1] : NULL;
}

static Load *load_of(Unit *unit) {
    for (int i = 0; i < num_loads; i++)
        if (!strcmp(loads[i].uuid, unit->uuid)) return &loads[i];
    return NULL;
}

static Unit *card_of(Unit *unit) {
    for (int i = 0; i < count; i++)
        if (!units[i].is_slice && units[i].card == unit->card) return &units[i];
    return unit;
}

#define FOUND(handle)                                   \
    Unit *unit = unit_of(handle);                       \
    if (!unit) return INVALID;                          \
    if (card_of(unit)->result) return card_of(unit)->result

int nvmlInit_v2(void) { return look(); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return look(); }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int result) {
    switch (result) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "%s", version);
    return OK;
}

int nvmlSystemGetCudaDriverVersion_v2(int *number) { *number = cuda; return OK; }

int nvmlDeviceGetCount_v2(unsigned *number) {
    look();
    *number = 0;
    for (int i = 0; i < count; i++) *number += !units[i].is_slice;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    look();
    for (long i = 0; i < count; i++)
        if (!units[i].is_slice && units[i].card == (int)index) {
            *handle = (void *)(i + 1);
            return units[i].result;
        }
    return INVALID;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    look();
    for (long i = 0; i < count; i++)
        if (!strcmp(units[i].uuid, uuid)) {
            *handle = (void *)(i + 1);
            return card_of(&units[i])->result;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    FOUND(handle);
    snprintf(text, length, "%s", unit->uuid);
    return OK;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    FOUND(handle);
    snprintf(text, length, "%s", unit->name);
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *total_free_used) {
    FOUND(handle);
    if (card_of(unit)->memory_result) return card_of(unit)->memory_result;
    total_free_used[0] = unit->bytes;
    total_free_used[2] = load_of(unit) ? unit->bytes / 2 : unit->used;
    total_free_used[1] = unit->bytes - total_free_used[2];
    return OK;
}

int nvmlDeviceGetComputeMode(void *handle, int *mode) {
    FOUND(handle);
    *mode = unit->mode;
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    FOUND(handle);
    *major = unit->capability / 10, *minor = unit->capability % 10;
    return OK;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending) {
    FOUND(handle);
    if (unit->mig < 0) return UNSUPPORTED;
    *now = *pending = (unsigned)unit->mig;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *number) {
    FOUND(handle);
    *number = 7;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **slice) {
    FOUND(handle);
    unsigned place = 0;
    for (long i = 0; i < count; i++)
        if (units[i].is_slice && units[i].card == unit->card && place++ == index) {
            *slice = (void *)(i + 1);
            return OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *number) {
    FOUND(handle);
    *number = (unsigned)unit->gpu_instance;
    return OK;
}

int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *number) {
    FOUND(handle);
    *number = (unsigned)unit->compute_instance;
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned *gpu_memory) {
    FOUND(handle);
    if (unit->is_slice) return UNSUPPORTED;
    gpu_memory[0] = load_of(unit) ? (unsigned)load_of(unit)->busy : 50, gpu_memory[1] = 10;
    return OK;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatt) {
    FOUND(handle);
    *milliwatt = load_of(unit) ? (unsigned)load_of(unit)->milliwatt : 250000;
    return OK;
}

/* Both structures are laid out as in nvml.h. */
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
} Field;

typedef struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

int nvmlDeviceGetFieldValues(void *handle, int number, Field *fields) {
    FOUND(handle);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    Load *load = load_of(unit);
    for (int i = 0; i < number; i++) {
        double rate = -1;
        if (load && load->counts) {
            switch (fields[i].field) {
            case 138: rate = (double)load->nvlink_out / 1024; break;
            case 139: rate = (double)load->nvlink_in / 1024; break;
            case 197: rate = (double)load->pcie_out; break;
            case 198: rate = (double)load->pcie_in; break;
            }
        }
        fields[i].result = rate < 0 ? UNSUPPORTED : OK;
        if (rate >= 0) fields[i].value = (unsigned long long)(rate * seconds);
    }
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *number, ProcessInfo *found) {
    FOUND(handle);
    unsigned room = *number;
    *number = 0;
    for (int i = 0; i < num_processes; i++) {
        if (strcmp(processes[i].uuid, unit->uuid)) continue;
        if (*number < room && found)
            found[*number] = (ProcessInfo){.pid = processes[i].pid, .bytes = 1u << 20};
        ++*number;
    }
    return *number > room ? INSUFFICIENT : OK;
}
