"""The tiny model: the same bytes every time, as the catalogue says, in a format that loaders read."""

from __future__ import annotations

import json
import struct

from infra.catalog.load import Catalog
from infra.rehearsal import tiny_model


def test_the_catalogue_describes_it() -> None:
    entry = Catalog().checkpoint(tiny_model.CHECKPOINT)
    contents = tiny_model.files()
    size = sum(len(content) for name, content in contents.items() if name != tiny_model.MANIFEST)
    assert entry.revision == tiny_model.revision()
    assert entry.repository == tiny_model.REPOSITORY
    assert (entry.size_bytes, entry.expert_bytes) == (size, tiny_model.expert_bytes())
    assert entry.num_files == sum(name.endswith(".safetensors") for name in contents)


def test_its_weights_are_where_their_header_says() -> None:
    content = tiny_model.files()[tiny_model.WEIGHTS]
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__")
    assert (8 + length) % 8 == 0
    end = 0
    for tensor in header.values():
        first, last = tensor["data_offsets"]
        count = 1
        for size in tensor["shape"]:
            count *= size
        assert (first, last - first, tensor["dtype"]) == (end, 2 * count, "BF16")
        end = last
    assert end == len(content) - 8 - length
    experts = [name for name in header if ".experts." in name]
    config = json.loads(tiny_model.files()["config.json"])
    assert len(experts) == 3 * config["num_experts"] * config["num_hidden_layers"]


def test_its_tokenizer_has_a_word_for_every_row_of_the_weights() -> None:
    files = tiny_model.files()
    words = json.loads(files["tokenizer.json"])["model"]["vocab"]
    assert sorted(words.values()) == list(range(json.loads(files["config.json"])["vocab_size"]))
