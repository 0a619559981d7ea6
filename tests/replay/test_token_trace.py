import gzip
import json

import pytest
import zstandard

from scout_sglang.replay.formats.detect import reader_for
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.trace import TraceError

HEADER = {"header": 1, "set": "x"}
CALL = {"agent": "a", "prompt": [0, 1], "output": 2, "gap": "start"}
SESSION = {"session": "s", "segments": [[1, 2], [3], [4, 5]], "calls": [CALL]}


def write(path, *lines):
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return path


def read(path, **options):
    options = Options(**options)
    return list(reader_for(path, options)(path, options))


def with_call(**changes):
    return {**SESSION, "calls": [{**CALL, **changes}]}


def test_a_session_reads_back(tmp_path):
    [session] = read(write(tmp_path / "t.jsonl", HEADER, SESSION))
    [call] = session.calls
    assert session.prompt(call).tolist() == [1, 2, 3]
    assert session.output(call).tolist() == [4, 5]
    assert (call.agent, call.gap, call.time) == ("a", "start", None)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_packed_file_reads_like_a_plain_one(tmp_path, pack):
    packed = tmp_path / "t.bin"
    packed.write_bytes(pack(write(tmp_path / "t.jsonl", HEADER, SESSION).read_bytes()))
    assert len(read(packed)) == 1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{broken", "not JSON"),
        ("[1]", "expected a JSON object"),
        ({**SESSION, "segments": [[1, "x"]]}, "'segments' must be a list of token ids"),
        ({**SESSION, "segments": [[-1]]}, "'segments' must be a list of token ids"),
        ({"session": "s", "segments": []}, "'calls' is missing"),
        (with_call(prompt=[0, 3]), "segment index 3"),
        (with_call(output="2"), "'output' must be int"),
        (with_call(gap="later"), "'gap' must be one of start, llm, tool, human"),
        (with_call(prompt=[]), "'prompt' is empty"),
        (with_call(time="noon"), "'time' must be int/float"),
    ],
)
def test_a_malformed_line_is_named_by_file_line_and_field(tmp_path, line, complaint):
    path = write(tmp_path / "t.jsonl", HEADER, SESSION, line)
    with pytest.raises(TraceError, match=r"t\.jsonl:3: ") as caught:
        read(path)
    assert complaint in str(caught.value)


def test_lenient_skips_malformed_lines_and_says_which(tmp_path):
    path = write(tmp_path / "t.jsonl", HEADER, "{broken", SESSION)
    skipped = []
    assert len(read(path, lenient=True, skipped=skipped)) == 1
    assert len(skipped) == 1
    assert "t.jsonl:2" in skipped[0]


def test_unknown_fields_are_passed_over(tmp_path):
    assert len(read(write(tmp_path / "t.jsonl", HEADER, {**SESSION, "mood": "good"}))) == 1


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(TraceError, match="is empty"):
        read(write(tmp_path / "t.jsonl", ""))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        read(tmp_path / "nowhere.jsonl")


def test_a_file_of_no_known_format_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(TraceError, match="unknown format; accepted: tokens"):
        read(write(tmp_path / "t.jsonl", {"a": 1}))
