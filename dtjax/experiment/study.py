"""A study is a question: settings, cells that are computed once, an analysis, a report."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

from dtjax.experiment import files, settings
from dtjax.experiment.files import output_folder, part, read, whole_file, write
from dtjax.experiment.process import draw, prepare
from dtjax.experiment.progress import Progress
from dtjax.experiment.provenance import commit, fingerprint, plain, provenance, versions
from dtjax.experiment.settings import Analysis, Grid, Range

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Study", "commit", "draw", "fingerprint", "output_folder", "part", "plain", "prepare",
    "provenance", "read", "versions", "whole_file", "write",
]  # fmt: skip


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
        if study.figure and (script := study.figure_script()):
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

    def figure_script(self) -> Path | None:
        """Return the script that draws the figure: `../figures/<name>.py`, if there is one."""
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
