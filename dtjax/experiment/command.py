"""The command line of a study: settings, report, exit code."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

from dtjax.experiment import settings
from dtjax.experiment.process import prepare
from dtjax.experiment.settings import OneOf
from dtjax.experiment.study import Study


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
        if chosen.figure and chosen.figure_script():
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
