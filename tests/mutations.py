"""Whether tests notice when the watchdog, the end of a worker or the lock of a folder is broken.

    python tests/mutations.py

Each mutation changes one place of a copy of the package, in which the tests that name its file are run; they
must fail. It takes about five minutes. Exit status 1 if a mutation survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WATCHDOG, LAUNCH = "core/host/watchdog.py", "lanes/launch.py"
SUPERVISOR, PROCESSES, LOCK = "lanes/worker_supervisor.py", "core/host/processes.py", "core/rundir/lock.py"
ENDS, VITALS = "tests/lanes/test_ends_of_workers.py", "tests/core/test_watchdog.py"
TESTS = {
    SUPERVISOR: [ENDS], LAUNCH: [ENDS, VITALS], WATCHDOG: [VITALS, ENDS], PROCESSES: [ENDS],
    LOCK: ["tests/runs/test_folder.py"],
}  # fmt: skip
MUTATIONS = [
    # What is over, and what is settled.
    (SUPERVISOR, "not in worker.over | worker.failed.keys()", "not in worker.over"),
    (SUPERVISOR, "not in worker.over | worker.failed.keys()", "not in worker.failed.keys()"),
    (SUPERVISOR, "while any(self._undone(worker) for worker in running)", "while running"),
    (SUPERVISOR, "        end_groups([worker.process])\n        write_text", "        write_text"),
    (SUPERVISOR, '.ended(worker.branch), "")\n        left', '.error(worker.branch), "")\n        left'),
    (SUPERVISOR, "if not self._paths.trial(name).done.exists()]", "]"),
    (SUPERVISOR, "if not left and (table_is_there or not worker.prepares)", "if not left"),
    (SUPERVISOR, "if not file.exists():", "if True:"),
    (SUPERVISOR, "(worker.prepares and not table_is_there) or found", "found"),
    (SUPERVISOR, "or found[\"kind\"] == ExecutorLostError.kind", ""),
    (SUPERVISOR, 'worker.failed[name] = found["message"]', "worker.over.add(name)"),
    (SUPERVISOR, 'write_json(lane.root / "error.json", {"branch": worker.branch, **found})', "pass"),
    (SUPERVISOR, "if status < 0:", "if status <= 0 or status > 0:"),
    (SUPERVISOR, "        end_groups([worker.process for worker in workers])\n\n", "        pass\n\n"),
    # Once more, and not twice.
    (SUPERVISOR, "if worker.start is None or worker.was_restarted:", "if worker.start is None:"),
    (SUPERVISOR, "if worker.start is None or worker.was_restarted:", "if True:"),
    (SUPERVISOR, "if not (fault and self._undone(worker)", "if not (self._undone(worker)"),
    (SUPERVISOR, "self._notes[spec.name] =", "_ ="),
    (SUPERVISOR, "if not self._started_again(worker, fault):", "if self._started_again(worker, fault):"),
    (LAUNCH, "if status is None or -status not in _CRASHES:", "if status is None or status >= 0:"),
    (LAUNCH, "self.failed.clear()", "pass"),
    (LAUNCH, 'elif event.kind in ("trial_done", "trial_left")', 'elif event.kind == "trial_left"'),
    # Silence.
    (SUPERVISOR, "elif self._has_to_wait(worker, table_seen):", "elif False:"),
    (SUPERVISOR, "if not table_seen and not worker.prepares:", "if False:"),
    (SUPERVISOR, "return worker.phase in (WAITING_FOR_TREES, WAITING_FOR_NETWORK)", "return False"),
    (SUPERVISOR, "elif fault := worker.hang():", "elif fault := None:"),
    (LAUNCH, "if silent_s < self.patience_s:", "if True:"),
    (LAUNCH, "if silent_s < self.patience_s:", "if silent_s < 0:"),
    (LAUNCH, "self.vitals.made_progress()", "pass"),
    (LAUNCH, "self.vitals = Vitals(self.process.pid)", "pass"),
    (LAUNCH, "seconds * (FAR if is_far else 1)", "seconds"),
    (WATCHDOG, "if passed < LOOK_EVERY_S:", "if False:"),
    (WATCHDOG, "self.idle_s += min(passed, 2 * LOOK_EVERY_S)", "self.idle_s += passed"),
    (WATCHDOG, "self.idle_s += min(passed, 2 * LOOK_EVERY_S)", "pass"),
    (WATCHDOG, "            self.idle_s = 0.0\n        else", "            pass\n        else"),
    (WATCHDOG, "or used.total() >= _BUSY * passed * 1e9", "or used.total() >= 0"),
    (WATCHDOG, "or sum(sorted(runnable.values())", "or 0 * sum(sorted(runnable.values())"),
    (WATCHDOG, "or now.moved - before.moved >= _BYTES_PER_S * passed", ""),
    (WATCHDOG, "before.processes != now.processes", "False"),
    (WATCHDOG, "or 0.0 < self._disk_s < _DISK_S", ""),
    (WATCHDOG, "for process in family(pid):\n        f", "for process in family(pid)[:1]:\n        f"),
    (WATCHDOG, "if vitals.look() >= patience_s:", "if False:"),
    (WATCHDOG, "process.send_signal(STACK_SIGNAL)", "pass"),
    (PROCESSES, "_signal_group(process, signal.SIGKILL)", "pass"),
    # The lock of a folder.
    (LOCK, "fcntl.flock(lock, how | fcntl.LOCK_NB)", "pass"),
    (LOCK, "if is_used or (may_live and _beats(paths.running)):", "if is_used:"),
    (LOCK, "            os.utime(paths.running)", "            pass"),
    (LOCK, "os._exit(TrialError.exit_code)", "pass"),
    (LOCK, "paths.running.unlink()", "pass"),
]  # fmt: skip


def main() -> int:
    repository = Path(__file__).parents[1]
    survived = 0
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for folder in ("sparkgpu", "tests"):
            shutil.copytree(repository / folder, copy / folder)
        shutil.copy(repository / "pyproject.toml", copy)
        for file, old, new in MUTATIONS:
            place = copy / "sparkgpu" / file
            text = place.read_text(encoding="utf-8")
            assert text.count(old) == 1, f"{file} holds {old!r} {text.count(old)} times"
            place.write_text(text.replace(old, new), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", "--timeout=60", *TESTS[file]],
                cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True,
            )  # fmt: skip
            place.write_text(text, encoding="utf-8")
            survived += done.returncode == 0
            last = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            print(
                f"{'caught' if done.returncode else 'SURVIVED'}: {file}: {old!r} -> {new!r}",
                *last[:1],
                flush=True,
            )
    print(f"{len(MUTATIONS)} mutations, {survived} survived")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
