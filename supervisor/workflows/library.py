"""Find workflows: built-in workflows, workflows in the folders of a user, and files by path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from handoff_queue.shared.settings.folders import find_files_with_suffix
from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.text.plain_yaml import convert_path
from handoff_queue.supervisor.workflows.parser import read_workflow_file
from handoff_queue.supervisor.workflows.workflow import Workflow

BUILT_IN = Path(__file__).parent
_SUFFIXES = (".yaml", ".yml")


def read_workflow(name_or_path: str | Path, dirs: Sequence[Path] = ()) -> Workflow:
    """Return the workflow with a name (`brief`) or in a file (`./ours/brief.yaml`).

    A name in a later folder takes precedence over an earlier folder, and any folder over the
    built-in workflows. A text with `/`, or that ends with `.yaml` or `.yml`, is a path.

    Raises:
        UserError: the name is unknown (the message lists the known names), or the workflow is
            invalid.
    """
    path = convert_path(name_or_path)
    if path.suffix.lower() in _SUFFIXES or "/" in str(name_or_path):
        return read_workflow_file(path)
    if not isinstance(dirs, list | tuple):
        raise UserError(f"dirs must be a list of folders, not {type(dirs).__name__}")
    folders = [convert_path(folder) for folder in dirs]
    otherwise = "name a known workflow, or a .yaml file by its path"
    if path.is_dir():
        otherwise = "it is a folder: name a .yaml file in it by its path, or a known workflow"
    return read_named_workflow(str(name_or_path), folders, otherwise=otherwise)


def read_named_workflow(name: str, dirs: Sequence[Path] = (), *, otherwise: str) -> Workflow:
    """Return the workflow with a name, as `read_workflow` does. The name is never a path.

    Args:
        otherwise: advice for an unknown name, before the list of the names.

    Raises:
        UserError: as `read_workflow`.
    """
    known: dict[str, Path] = {}
    for folder in (BUILT_IN, *dirs):
        known.update(_find_files(folder))
    if name not in known:
        advice = suggest_name(name, sorted(known), otherwise=otherwise)
        raise UserError(f"there is no workflow {name!r:.80}: {advice}")
    return read_workflow_file(known[name])


def _find_files(folder: Path) -> dict[str, Path]:
    """Return the workflow files of a folder by name. Hidden files are ignored.

    Raises:
        UserError: two files have the same name.
    """
    files_by_name: dict[str, Path] = {}
    for path in find_files_with_suffix(folder, _SUFFIXES):
        if path.name.startswith("."):
            continue
        if path.stem in files_by_name:
            raise UserError(
                f"{path}: {path.stem} is {files_by_name[path.stem].name} too; rename or remove one"
                " of the two"
            )
        files_by_name[path.stem] = path
    return files_by_name
