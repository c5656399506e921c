"""The files of onnxruntime-web in a published folder, for policies that cannot be compiled."""

from __future__ import annotations

import json
from pathlib import Path

from arkml.base.files import read_file
from arkml.errors import UsageError

PACKAGE = "onnxruntime-web"
"""The npm package, of which the folder is taken."""

RUNTIME_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""Its files that a page loads; it runs them in one thread."""

MODEL = "policy.onnx"
"""The model that it runs."""

_FOLDER, _ABOUT = "dist", "package.json"
_NOTICE = "onnxruntime-web.txt"


def runtime_files(package: Path) -> dict[str, bytes]:
    """
    Return the files of onnxruntime-web, and its license notice, by name.

    `package` is the folder of the npm package. Raises UsageError.
    """
    try:
        about = json.loads(read_file(package / _ABOUT))
        name, version = about["name"], about["version"]
        license_name = about["license"]
        files = {each: read_file(package / _FOLDER / each) for each in RUNTIME_FILES}
    except OSError as error:
        raise UsageError(
            f"--runtime {package} cannot be read: {error.filename}: {error.strerror}. It is the"
            f" folder of the npm package {PACKAGE}, such as node_modules/{PACKAGE}"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{package / _ABOUT} is not the description of an npm package") from None
    if name != PACKAGE:
        raise UsageError(f"--runtime {package} is the package {str(name)[:80]!r}, not {PACKAGE}")
    notice = (
        f"{', '.join(RUNTIME_FILES)} are files of {PACKAGE} {version}, license {license_name}:\n"
        f"https://www.npmjs.com/package/{PACKAGE}\n"
    )
    return {**files, _NOTICE: notice.encode()}
