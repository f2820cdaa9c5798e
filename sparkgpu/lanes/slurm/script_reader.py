"""Reads from a batch script what it requests from Slurm, how it starts ranks, and which run it starts.

It understands only plain shell: directives, assignments of literal values, one launcher, one run. The
variables of a job have no value before the job runs, so they are left as they are.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from string import Template

from sparkgpu.core.config import toml as config_io
from sparkgpu.core.config.keys import RunConfig
from sparkgpu.core.config.toml import OPTIONS
from sparkgpu.core.errors import ConfigError
from sparkgpu.core.host.rank_command import LAUNCHER

Options = dict[str, str]

_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(-[^\s=]+)(?:=|[ \t]+)?(\S+)?", re.MULTILINE)
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(\S*|'[^'\n]*')\s*$", re.MULTILINE)
_RUN = re.compile(r"^\s*(?:srun\s.*)?sparkgpu run\s+(.*--config\s.*)$", re.MULTILINE)
_TORCHRUN = ("torchrun", "torch.distributed.run")
_SHORT = {"-N": "nodes", "-t": "time"}


@dataclass(frozen=True, kw_only=True)
class Script:
    """The parts of a batch script. `srun` and `torchrun` are the launcher's options; empty without one."""

    directives: Options
    srun: Options
    torchrun: Options
    config: RunConfig


def read_script(file: Path) -> Script:
    """Raises `ConfigError` if the file cannot be read, or if the run that it starts cannot be recognised."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}). Give the path of a batch script.") from None
    directives = {_SHORT.get(option, option.lstrip("-")): value for option, value in _DIRECTIVE.findall(text)}
    joined = text.replace("\\\n", "")
    launcher = re.search(rf'{LAUNCHER}="([^"]*)"', joined)
    srun, torchrun = _launcher(file, launcher[1]) if launcher else ({}, {})
    return Script(directives=directives, srun=srun, torchrun=torchrun, config=_config(file, joined))


def _launcher(file: Path, line: str) -> tuple[Options, Options]:
    words = shlex.split(line)
    start = next((at for at, word in enumerate(words) if Path(word).name in _TORCHRUN), None)
    if start is None:
        raise ConfigError(
            f"{file}: {LAUNCHER} starts no torchrun; write the scripts again, then change them."
        )
    return dict(_options(words[:start])), dict(_options(words[start + 1 :]))


def _options(words: list[str]) -> list[tuple[str, str]]:
    """The options by their long names, each with its value; of a flag that is an empty text."""
    found = []
    for place, word in enumerate(words):
        if word.startswith("-"):
            name, mark, value = word.partition("=")
            following = words[place + 1] if place + 1 < len(words) else "-"
            if not mark and not following.startswith("-"):
                value = following
            found.append((_SHORT.get(name, name.lstrip("-")).replace("_", "-"), value))
    return found


def _config(file: Path, text: str) -> RunConfig:
    """The configuration of the run, from its command line."""
    found = _RUN.search(text)
    if found is None:
        raise ConfigError(
            f"{file}: no line in it starts `sparkgpu run --config FILE`; write the scripts again with "
            "`sparkgpu slurm write`."
        )
    variables = {name: value.strip("'\"") for name, value in _ASSIGNMENT.findall(text)}
    line = Template(found[1]).safe_substitute(variables)
    options: dict[str, object] = {}
    assignments: list[str] = []
    config: Path | None = None
    for option, value in _options([word for word in shlex.split(line.rstrip().rstrip("&")) if word]):
        name = option.replace("-", "_")
        if name == "config":
            config = Path(value)
        elif name == "set":
            assignments.append(value)
        elif name in OPTIONS:
            options[OPTIONS[name]] = int(value) if value.isdigit() and name != "gpus" else value
    if config is None or not config.is_file():
        raise ConfigError(f"{file}: it reads {config}, which does not exist; write the scripts again.")
    return config_io.load(file=config, options=options, assignments=assignments)
