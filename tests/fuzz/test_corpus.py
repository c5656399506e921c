"""The corpus of the fuzz targets: every file is explained, small, and passes the checks."""

import logging

import pytest
from tests.fuzz.checks import check_container, check_model, check_module, check_side_channel
from tests.fuzz.corpus import CORPUS, files_of
from tests.fuzz.onnx_models import check_against_onnxruntime
from tests.fuzz.player import player

from arkml.limits import Limits
from arkml.policies.cervo import unpack
from arkml.policies.nnef_archive import read_archive
from arkml.policies.vetting import vet
from arkml.runtime.module.normalize import normalize

CHECKS = {
    "modules": (check_module,),
    "models": (check_model, check_against_onnxruntime),
    "containers": (check_container,),
    "side_channels": (check_side_channel,),
}
FILES = [
    pytest.param(
        folder,
        path,
        id=f"{folder}/{path.name}",
    )
    for folder in CHECKS
    for path in files_of(folder)
]
MOST_BYTES = 200_000


@pytest.mark.parametrize(("folder", "path"), FILES)
def test_a_seed_passes_the_checks_of_its_target(folder, path):
    for check in CHECKS[folder]:
        check(path.read_bytes())


def test_the_messages_of_a_trainer_pass():
    logging.disable(logging.CRITICAL)
    with player() as check:
        check([path.read_bytes() for path in files_of("player")])
    logging.disable(logging.NOTSET)


def test_seeds_are_taken_and_so_lead_to_what_is_behind_the_first_check():
    limits = Limits()
    for path in files_of("modules"):
        if not path.name.startswith("found_"):
            assert normalize(path.read_bytes(), limits).wasm
    for path in files_of("models"):
        if not path.name.startswith("found_"):
            assert vet(path.read_bytes(), limits)
    archive = read_archive(unpack((CORPUS / "containers" / "nnef.crvo").read_bytes())[1], limits)

    assert (archive.inputs, archive.outputs, archive.parameters) == (("x",), ("y",), 12)


def test_every_file_of_the_corpus_is_explained_and_all_are_small():
    files = [path for path in CORPUS.rglob("*") if path.is_file() and path.parent != CORPUS]
    text = (CORPUS / "README.md").read_text()
    unnamed = [path.name for path in files if f"`{path.name}`" not in text]

    assert unnamed == []
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
