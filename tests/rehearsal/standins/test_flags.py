"""What docker's client says about its own command line, as recorded from docker 28.2.2."""

from __future__ import annotations

import pytest

from infra.rehearsal.standins.command_flags import DOCKER_RUN, PODMAN_RUN
from infra.rehearsal.standins.flag_values import VALUE_CHECKS, parse_gpus, parse_size, parse_ulimit
from infra.rehearsal.standins.flags import FlagError, FlagParser


def parse(*arguments: str) -> dict[str, list[str]]:
    return FlagParser(DOCKER_RUN, VALUE_CHECKS).parse(list(arguments)).given


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["-itd", "x"], {"interactive": ["true"], "tty": ["true"], "detach": ["true"]}),
        (["-eA=1", "-e", "B=2", "-e=C=3"], {"env": ["A=1", "B=2", "C=3"]}),
        (["--env", "A=1", "--env=B"], {"env": ["A=1", "B"]}),
        (["--rm=false"], {"rm": ["false"]}),
        (["--name=a", "--name", "b"], {"name": ["a", "b"]}),
        (["-v", "/a:/b:ro", "--volume=/c:/d"], {"volume": ["/a:/b:ro", "/c:/d"]}),
        (["-dp", "8000:8000"], {"detach": ["true"], "publish": ["8000:8000"]}),
        (["--net", "host"], {"net": ["host"]}),
        (["-e", "-x"], {"env": ["-x"]}),
    ],
)
def test_options_are_read_in_every_spelling(
    arguments: list[str], given: dict[str, list[str]]
) -> None:
    assert parse(*arguments) == given


def test_everything_after_the_image_belongs_to_the_container() -> None:
    parsed = FlagParser(DOCKER_RUN, VALUE_CHECKS).parse(["--rm", "image", "--rm", "-x", "--", "y"])
    assert parsed.words == ["image", "--rm", "-x", "--", "y"]
    assert parsed.given == {"rm": ["true"]}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--foo", "x"], "unknown flag: --foo"),
        (["--gpu", "all"], "unknown flag: --gpu"),
        (["-Z"], "unknown shorthand flag: 'Z' in -Z"),
        (["-itZ"], "unknown shorthand flag: 'Z' in -Z"),
        (["--name"], "flag needs an argument: --name"),
        (["-e"], "flag needs an argument: 'e' in -e"),
        (
            ["--rm=maybe"],
            'invalid argument "maybe" for "--rm" flag: strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (
            ["--gpus", "foo"],
            (
                'invalid argument "foo" for "--gpus" flag: invalid count (foo): value must be either '
                '"all" or an integer: invalid syntax'
            ),
        ),
        (
            ["--gpus", "device=0,device=1"],
            (
                'invalid argument "device=0,device=1" for "--gpus" flag: gpu request key \'device\' can be '
                "specified only once"
            ),
        ),
        (
            ["--shm-size", "foo"],
            'invalid argument "foo" for "--shm-size" flag: invalid size: \'foo\'',
        ),
        (
            ["--ulimit", "foo=1"],
            'invalid argument "foo=1" for "--ulimit" flag: invalid ulimit type: foo',
        ),
        (
            ["--ulimit", "nofile"],
            'invalid argument "nofile" for "--ulimit" flag: invalid ulimit argument: nofile',
        ),
        (
            ["--ulimit", "nofile=1:a"],
            (
                'invalid argument "nofile=1:a" for "--ulimit" flag: strconv.ParseInt: parsing "a": '
                "invalid syntax"
            ),
        ),
        (
            ["-e", "=x"],
            'invalid argument "=x" for "-e, --env" flag: invalid environment variable: =x',
        ),
        (
            ["--mount", "type=bind,source=/a"],
            'invalid argument "type=bind,source=/a" for "--mount" flag: target is required',
        ),
        (
            ["--mount", "type=bind,foo=1,target=/x"],
            (
                'invalid argument "type=bind,foo=1,target=/x" for "--mount" flag: unexpected key \'foo\' in '
                "'foo=1'"
            ),
        ),
        (
            ["--mount", "readonlyx"],
            (
                'invalid argument "readonlyx" for "--mount" flag: invalid field \'readonlyx\' must be a '
                "key=value pair"
            ),
        ),
        (
            ["--stop-timeout", "abc"],
            (
                'invalid argument "abc" for "--stop-timeout" flag: strconv.ParseInt: parsing "abc": '
                "invalid syntax"
            ),
        ),
        (
            ["--memory", "x"],
            'invalid argument "x" for "-m, --memory" flag: invalid size: \'x\'',
        ),
        (
            ["--label", "="],
            'invalid argument "=" for "-l, --label" flag: invalid label \'=\': empty name',
        ),
        (
            ["--cpus", "a"],
            'invalid argument "a" for "--cpus" flag: failed to parse a as a rational number',
        ),
    ],
)
def test_a_refusal_has_the_words_of_the_real_client(arguments: list[str], reason: str) -> None:
    with pytest.raises(FlagError) as refusal:
        parse(*arguments)
    assert str(refusal.value) == reason


def test_an_unquoted_device_list_asks_for_a_count_as_well() -> None:
    request = parse_gpus("device=0,1")
    assert (request.device_ids, request.count) == (["0"], 1)


def test_a_quoted_device_list_is_a_list() -> None:
    request = parse_gpus('"device=0,1"')
    assert (request.device_ids, request.count) == (["0", "1"], 0)


@pytest.mark.parametrize(
    ("text", "size"), [("64m", 64 << 20), ("1g", 1 << 30), ("16GiB", 16 << 30), ("512", 512)]
)
def test_sizes_are_binary(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_a_single_limit_is_soft_and_hard() -> None:
    assert parse_ulimit("memlock=-1") == ("memlock", -1, -1)


def test_podman_4_has_no_gpus_option_and_splits_devices_at_commas() -> None:
    parser = FlagParser(PODMAN_RUN, VALUE_CHECKS)
    with pytest.raises(FlagError, match="unknown flag: --gpus"):
        parser.parse(["--gpus", "all", "image"])
    assert parser.parse(["--device", "/dev/a,/dev/b", "image"]).all("device") == [
        "/dev/a",
        "/dev/b",
    ]
