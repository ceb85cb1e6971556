"""The configuration keys whose values are words of a form: what each must look like, and what it means."""

from __future__ import annotations

from dataclasses import dataclass

from infra.provision.config_problems import PROJECT_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One configuration key: what it must look like, and what to tell whoever left it out."""

    name: str
    pattern: str
    example: str
    meaning: str
    is_required: bool = False
    is_of_login: bool = False

    @property
    def full_name(self) -> str:
        """As the configuration file has it (`aws:region`, `moe-infra:zone_id`)."""
        return self.name if ":" in self.name else f"{PROJECT_NAME}:{self.name}"


KEYS: tuple[Key, ...] = (
    Key(
        name="aws:region",
        pattern=r"[a-z]{2}(-[a-z]+)+-\d",
        example="us-east-1",
        meaning="the region of the capacity",
        is_required=True,
    ),
    Key(
        name="account_id",
        pattern=r"\d{12}",
        example="123456789012",
        meaning="the number of the account that the stack is kept in",
    ),
    Key(
        name="zone_id",
        pattern=r"[a-z0-9]+(-[a-z0-9]+)?-az\d+",
        example="use1-az4",
        meaning="the zone id of the capacity (ids are the same in every account, letters are not)",
        is_required=True,
    ),
    Key(
        name="key_name",
        pattern=r".{1,255}",
        example="my-key",
        meaning="the EC2 key pair whose private key your SSH agent holds",
        is_of_login=True,
    ),
    Key(
        name="reservation_id",
        pattern=r"cr-[0-9a-f]{8,17}",
        example="cr-0123456789abcdef0",
        meaning="the capacity reservation that you have bought; this program never buys one",
    ),
    Key(
        name="ami",
        pattern=r"ami-[0-9a-f]{8,17}",
        example="ami-0123456789abcdef0",
        meaning="the machine image to pin",
    ),
    Key(
        name="notice_topic",
        pattern=r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}",
        example="arn:aws:sns:us-east-1:123456789012:capacity-ends",
        meaning="the SNS topic that hears of the end of a capacity block",
    ),
    Key(
        name="replace_machines",
        pattern=r"[a-z0-9\-]+(,[a-z0-9\-]+)*",
        example="decode-0",
        meaning="names of hosts, with commas between",
    ),
    Key(
        name="kms_key_arn",
        pattern=r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/(mrk-)?[0-9a-f-]{32,36}",
        example="arn:aws:kms:us-east-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef",
        meaning="the ARN of a key of KMS (an alias is none: it may name another key tomorrow)",
    ),
    Key(
        name="weights_bucket",
        pattern=r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]",
        example="my-weights",
        meaning="the existing bucket that holds the weights",
    ),
    Key(
        name="subnet_id",
        pattern=r"subnet-[0-9a-f]{8,17}",
        example="subnet-0123456789abcdef0",
        meaning="the existing subnet for hosts, in the zone of the capacity and with a way out",
    ),
    Key(
        name="gateway_subnet_id",
        pattern=r"subnet-[0-9a-f]{8,17}",
        example="subnet-0123456789abcdef0",
        meaning="the existing subnet for the load balancer",
    ),
    Key(
        name="certificate_arn",
        pattern=r"arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[A-Za-z0-9-]+",
        example="arn:aws:acm:us-east-1:123456789012:certificate/01234567-89ab-cdef-0123-456789abcdef",
        meaning="the ARN of a certificate of ACM, by which a load balancer ends TLS",
    ),
    Key(
        name="clients_name",
        pattern=r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+",
        example="kimi.example.com",
        meaning="the DNS name that clients call the load balancer by",
    ),
    Key(
        name="weights_mount",
        pattern=r"[^\s:]+(@tcp)?:/\S*",
        example="fs-0123456789abcdef0.efs.us-east-2.amazonaws.com:/",
        meaning="what `mount` takes for an NFS export (HOST:/PATH) or Lustre (HOST@tcp:/NAME)",
    ),
)
