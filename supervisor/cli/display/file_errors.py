"""Errors of files in one line: the file, the fault and the remedy."""

from __future__ import annotations

import errno

_REMEDIES = {
    errno.ENOENT: "make its folder first, or name another file",
    errno.ENOTDIR: "a part of the path is a file, so name another path",
    errno.EISDIR: "it is a folder, so name a file",
    errno.EACCES: "change the permissions, or name another file",
    errno.EPERM: "change the permissions, or name another file",
    errno.EROFS: "name a file in a folder that this user can write",
    errno.ENOSPC: "free space on this disk, or use another one",
    errno.EDQUOT: "free space on this disk, or use another one",
    errno.ENAMETOOLONG: "choose a shorter name",
}
_OTHER_REMEDY = "check the path and its permissions, or name another file"


def describe_file_problem(error: OSError) -> str:
    """Return one line about a file that the system refuses. An error without a file has no
    remedy.
    """
    problem = error.strerror or str(error)
    if not error.filename:
        return f"the system: {problem}"
    return f"{error.filename}: {problem}: {_REMEDIES.get(error.errno or 0, _OTHER_REMEDY)}"
