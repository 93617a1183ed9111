"""A study is a question: settings, cells that are computed once, an analysis, a report."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

from dtjax.experiment import files, settings
from dtjax.experiment.files import output_folder, part, read, whole_file, write
from dtjax.experiment.provenance import commit, fingerprint, plain, provenance, versions
from dtjax.experiment.settings import Analysis, Grid, OneOf, Range

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Progress", "Study", "command", "commit", "draw", "fingerprint", "main", "output_folder",
    "part", "plain", "prepare", "provenance", "read", "versions", "whole_file", "write",
]  # fmt: skip


class Progress:
    """Where a study is: one bar over all cells.

    Args:
        cells: how many there are.
        shown: whether the bar is drawn.
    """

    def __init__(self, cells: int, *, shown: bool = True) -> None:
        from tqdm import tqdm

        form = "{desc}{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        self._bar = tqdm(
            total=cells, bar_format=form, dynamic_ncols=True, leave=False, disable=not shown
        )
        self._cells, self._label = 0, ""

    def note(self, words: str) -> None:
        """Say what a cell is at."""
        self._bar.set_postfix_str(f"{self._label}: {words}")

    def share(self, done: float) -> None:
        """Say which share of its work, from 0 to 1, a cell has done."""
        self._bar.update(max(0.0, self._cells + min(done, 1.0) - self._bar.n))

    def begin(self, label: str) -> None:
        """Name the cell that comes now."""
        self._label = label
        self._bar.set_postfix_str(label)

    def end(self) -> None:
        """Count a cell as done."""
        self.share(1.0)
        self._cells += 1

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


@dataclass(frozen=True)
class Study:
    """A question, asked by a frozen dataclass of settings that derives from this one.

    Annotations say what a setting may be (`Range`, `OneOf`), what it is in a smoke run (`Smoke`),
    over which values the cells go (`Grid`) and what cells do not read (`Analysis`). A cell is
    computed by `compute` and kept in a file: by its settings, and by the source that it ran.
    `analyse` and `report` run each time. `main` makes a command of the class.

    Example:
        >>> @dataclass(frozen=True)
        ... class Squares(Study):
        ...     n: Annotated[tuple[int, ...], Range(1), Grid("n")] = (2, 3)
        ...     def compute(self, cell, progress):
        ...         import xarray as xr
        ...         return xr.Dataset({"square": ((), cell["n"] ** 2)})
        ...     def report(self, whole):
        ...         return f"squares: {whole.square.values}"
        >>> Squares().grid()
        {'n': (2, 3)}
    """

    out: Annotated[Path | None, Analysis()] = None
    """Folder of the results; results/ and the name of the study if not given. A run that was
    interrupted goes on from what is there."""
    seed: Annotated[int, Range(0, 2**31 - 1)] = 0
    """Of everything."""
    figure: Annotated[bool, Analysis()] = True
    """Draw the figure, too."""
    smoke: Annotated[bool, Analysis()] = False
    """A size that only shows that everything works, in seconds: smaller defaults."""

    def filled(self) -> Self:
        """Return the study with the settings that follow from others filled in."""
        return self

    def check(self) -> None:
        """Raise ValueError for what no single setting's annotation can say."""

    def grid(self) -> dict[str, tuple[Any, ...]]:
        """Return the dimensions of the cells with their values: settings marked as `Grid`."""
        marks = settings.marked(self, Grid)
        return {mark.name: getattr(self, setting) for setting, mark in marks.items()}

    def compute(self, cell: dict[str, Any], progress: Progress) -> xr.Dataset:
        """Compute one cell: raw arrays.

        `self` shows no setting that is marked as `Analysis` or `Grid`: reading one is an error.

        Args:
            cell: its value along each dimension of the grid.
            progress: to say where it is.
        """
        raise NotImplementedError

    def analyse(self, whole: xr.Dataset) -> xr.Dataset:
        """Add what follows from the raw arrays of all cells; not kept, so it should be quick."""
        return whole

    def report(self, whole: xr.Dataset) -> str:
        """Say what was found, for people."""
        del whole
        return ""

    @classmethod
    def name(cls) -> str:
        """Return the name of the study: of its class, in lower case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def settled(self) -> Self:
        """Return the study with its smoke values filled in, every setting checked.

        Raises:
            ValueError: naming the study, the setting, the rule and the value.
        """
        found = settings.settled(self, self.name()).filled()
        found.check()
        return found

    def run(self, *, progress: bool = True) -> xr.Dataset:
        """Compute the cells that no file holds, analyse, write the result and draw its figure.

        Args:
            progress: whether to show a bar.

        Returns:
            What was written to `<out>/<name>.nc`.

        Raises:
            ValueError: if a setting is wrong, or the folder cannot be written.
        """
        study = self.settled()
        source = study._source()
        folder = output_folder(study.folder)
        cells = study._cells(source.parent, Progress(study._count(), shown=progress))
        whole = study.analyse(_joined(study.grid(), cells))
        about = provenance(study, source.parent) | {"study": study.name()}
        whole = whole.assign_attrs(about)
        write(whole, folder / f"{study.name()}.nc")
        if study.figure and (script := study._figure_script()):
            path = folder / f"{study.name()}.nc"
            draw(script, str(path), "--out", str(path.with_suffix(".png")))
        return whole

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return Path("results", self.name()) if self.out is None else self.out

    def _count(self) -> int:
        return len(list(itertools.product(*self.grid().values())))

    def _cells(self, source: Path, progress: Progress) -> list[xr.Dataset]:
        """Return all cells in the order of the grid."""
        parts, kept, found = output_folder(self.folder / "parts"), self._kept(), []
        shown = self._shown()
        try:
            for values in itertools.product(*self.grid().values()):
                cell = dict(zip(self.grid(), values, strict=True))
                label = "-".join(str(value) for value in values) or self.name()
                progress.begin(label)
                key, make = [self.name(), kept, cell], lambda c=cell: shown.compute(c, progress)
                found.append(files.part(parts, key, make, label=label, own=source))
                progress.end()
        finally:
            progress.close()
        return found

    def _hidden(self) -> set[str]:
        """Return the settings that cells do not read."""
        return set(settings.marked(self, Analysis)) | set(settings.marked(self, Grid))

    def _kept(self) -> dict[str, Any]:
        """Return the settings that a cell is kept by."""
        hidden = self._hidden()
        every = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name) for name in every if name not in hidden}

    def _shown(self) -> Self:
        """Return this study as cells see it."""

        def refuse(setting: str) -> property:
            def get(_: Any) -> NoReturn:
                rule = "is no part of what a cell is kept by, so compute must not read it"
                raise AttributeError(f"{self.name()}: setting {setting} {rule}")

            return property(get)

        hiding: dict[str, Any] = {setting: refuse(setting) for setting in self._hidden()}
        seen: Any = object.__new__(type(type(self).__name__, (type(self),), hiding))
        seen.__dict__.update(self.__dict__)
        return seen

    def _source(self) -> Path:
        return Path(str(sys.modules[type(self).__module__].__file__)).resolve()

    def _figure_script(self) -> Path | None:
        script = self._source().parents[1] / "figures" / f"{self.name()}.py"
        return script if script.exists() else None


def _joined(grid: dict[str, tuple[Any, ...]], cells: list[xr.Dataset]) -> xr.Dataset:
    """Join cells along the dimensions of the grid; what is shorter is padded with NaN."""
    import xarray as xr

    for dim, values in reversed(grid.items()):
        most = {one: max(cell.sizes[one] for cell in cells) for one in cells[0].sizes}
        cells = [
            cell.pad({one: (0, most[one] - n) for one, n in cell.sizes.items() if n < most[one]})
            for cell in cells
        ]
        rows = [cells[i : i + len(values)] for i in range(0, len(cells), len(values))]
        joined = [xr.concat(row, dim, data_vars="all") for row in rows]
        cells = [row.assign_coords({dim: list(values)}) for row in joined]
    return cells[0]


def prepare(*, devices: int | None = None, cache: bool = True) -> None:
    """Set up JAX for a script: one CPU device a core, and a cache of compiled programs.

    To be called before anything is computed. A library does not do this, a command line may.

    Args:
        devices: CPU devices; None: as many as this process has cores.
        cache: keep compiled programs in the user's cache folder, so that a second run starts fast.
    """
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    jax.config.update("jax_num_cpu_devices", devices or cores or 1)
    if cache:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(Path(home) / "dtjax" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def draw(figure: Path, *arguments: str) -> None:
    """Run a figure's script on a result file, in a process of its own.

    Raises:
        RuntimeError: with what it printed last, if it fails.
    """
    command = [sys.executable, str(figure), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise RuntimeError(f"draw: {figure.name} failed: {said[-1]}")


def parse(study: type[Study], arguments: Sequence[str] | None = None) -> Study:
    """Read settings from a command line."""
    import tyro

    fields: list[Any] = []
    for field in dataclasses.fields(study):
        hint: Any = settings.hints(study)[field.name]
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OneOf):
                names = f"{{{','.join(mark.names)}}}"
                hint = Annotated[hint, tyro.conf.arg(metavar=f"{names} ...")]
        fields.append((field.name, hint, dataclasses.field(default=field.default)))
    told = dataclasses.make_dataclass(study.__name__, fields, bases=(study,), frozen=True)
    found = tyro.cli(told, description=inspect.getdoc(study), args=arguments)
    return study(**{field.name: getattr(found, field.name) for field in dataclasses.fields(study)})


def command(study: type[Study], arguments: Sequence[str] | None = None) -> int:
    """Run a study as a command line says, and print its report.

    Args:
        study: the class.
        arguments: of the command line; None: those of this process.

    Returns:
        The exit code: 0, 1 after an error, whose message is one line, 130 if interrupted.
    """
    chosen = parse(study, arguments)
    try:
        prepare()
        chosen = chosen.settled()
        whole = chosen.run()
        print(chosen.report(whole))
        print(f"wrote {chosen.folder / chosen.name()}.nc")
        if chosen.figure and chosen._figure_script():
            print(f"wrote {chosen.folder / chosen.name()}.png")
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        words = "interrupted: what is done is kept, the same command goes on from there"
        print(words, file=sys.stderr)
        return 130
    return 0


def main(study: type[Study]) -> NoReturn:
    """Run a study as the command line of this process says, and end with its exit code."""
    sys.exit(command(study))
