"""Simulated hosts of every kind that a tuning profile is for, with stand-ins for the tools that tuning needs.

The profiles follow from what these hosts are, as they do on real ones. A tool obeys `TOOL_FAULT`: it ends with an
error, or with success and no effect. What a boot loader holds reaches the kernel at the next boot of the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.rehearsal.lab.hosts import Bind, LabFile, LabHost
from tests.agent import simulated_grubby
from tests.agent.test_pcie_acs import ON, space

TOOL_FAULT = "/run/tool-fault"
AMDGPU = "/sys/bus/pci/drivers/amdgpu/0000:05:00.0"
JEMALLOC = "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"
BOOT_ENTRIES = "/boot/loader/entries"
UNITS = "/usr/lib/systemd/system"

# As real ones do, it ends with an error, or with success and no effect; questions are always answered.
TOOL = """\
#!/bin/sh
case "$(cat {fault} 2>/dev/null) $1" in
  *" is-enabled"|*" show"|*" list-units"|*" daemon-reload"|*" --query"*|*" --dry-run"|*" --show"|*" -L"|*" --info"*) ;;
  refuses*) echo "{name}: Access denied" >&2; exit 1;;
  sticks*) exit 0;;
  kills*) kill -9 $PPID; exit 1;;
  waits*) sleep 20; exit 1;;
esac
{body}
"""
# Until this copy is made, the next boot knows nothing of a file of modprobe.d.
INITRAMFS = "cat /etc/modprobe.d/*.conf > /boot/module-options"
TOOLS = {
    "systemctl": 'exec /usr/bin/systemctl "$@"',
    "ip": 'exec /usr/sbin/ip "$@"',
    "timedatectl": "echo NTPSynchronized=yes",
    "modprobe": """\
[ "$1" != --dry-run ] || case "$4" in nvidia|nvidia_peermem|gdrdrv|ib_umad) exit 0;; *) exit 1;; esac
mkdir -p /sys/module/$2""",
    "rmmod": "rmdir /sys/module/$2",
}
DEBIAN_TOOLS = {
    "update-grub": """\
for file in /etc/default/grub.d/*.cfg; do . $file; done
echo "BOOT_IMAGE=/vmlinuz ro $GRUB_CMDLINE_LINUX_DEFAULT" > /boot/cmdline""",
    "update-initramfs": INITRAMFS,
    "dpkg-query": """\
shift 4
while read state name; do for pattern; do case $name in $pattern) echo "$state $name"; break;; esac; done; done \\
  < /var/packages
exit 1""",
    "apt-mark": '[ $1 = hold ] && word=hi || word=ii; sed -i "s/^.. $3\\$/$word $3/" /var/packages',
}
RED_HAT_TOOLS = {
    "grubby": f'exec /usr/bin/python3 -S /opt/grubby.py {BOOT_ENTRIES} "$@"',
    "dracut": INITRAMFS,
}
NVIDIA_TOOLS = {
    # A file per value and GPU, with what each boot begins with.
    "nvidia-smi": """\
d=/run/gpu
[ -d $d ] || { mkdir $d; for gpu in 0 1; do while read field value; do echo "$value" > $d/$field.$gpu; done <<FIRST
persistence_mode Disabled
power.limit 600.00
power.max_limit 700.00
clocks.applications.memory 1593
clocks.applications.graphics 1200
clocks.max.memory 3201
clocks.max.graphics 1980
mig.mode.pending Enabled
mig.mode.current Enabled
FIRST
done; }
case "$1 $3" in
-L*) ;;
--query*) for gpu in 0 1; do
    line=$gpu
    for field in $(echo "$1" | sed 's/--query-gpu=index,//; s/,/ /g'); do line="$line, $(cat $d/$field.$gpu)"; done
    echo "$line"
  done;;
*-pl) echo $4.00 > $d/power.limit.$2;;
*-ac) echo ${4%,*} > $d/clocks.applications.memory.$2; echo ${4#*,} > $d/clocks.applications.graphics.$2;;
*) [ $4 = 1 ] && mode=Enabled || mode=Disabled
  case $3 in -pm) echo $mode > $d/persistence_mode.$2;;
  *) echo $mode > $d/mig.mode.pending.$2; echo $mode > $d/mig.mode.current.$2;; esac;;
esac""",
}
# What a boot loader, an initramfs and systemd-modules-load bring about before anything else runs.
BOOT = f"""\
#!/bin/sh
cat /boot/cmdline > /proc/cmdline 2>/dev/null
sed -n 's/^options /BOOT_IMAGE=vmlinuz /p' {BOOT_ENTRIES}/6.6.conf > /run/cmdline 2>/dev/null &&
  cat /run/cmdline > /proc/cmdline
grep -q '^options nvidia NVreg_CreateImexChannel0=1' /boot/module-options 2>/dev/null &&
  echo 'CreateImexChannel0: 1' > /proc/driver/nvidia/params
for module in $(cat /etc/modules-load.d/60-*.conf 2>/dev/null | grep -v ^'#'); do
  /usr/local/sbin/modprobe -- $module
done
exit 0
"""
BOOT_UNIT = "moe-lab-boot.service"
BOOT_UNIT_TEXT = (
    "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/local/sbin/moe-lab-boot\n"
)
SERVICE_TEXT = (
    "[Service]\nType=exec\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
)
TIMER_TEXT = "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n"
ENGINE_UNIT = "moe-s-engine@"
ENGINE_TEXT = """\
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
LimitMEMLOCK=infinity
LimitNOFILE=1048576
LimitSTACK=67108864
[Install]
WantedBy=multi-user.target
"""
# A network namespace lacks these, or shows the machine's own and lets nobody write them.
NETWORK_OF_ALL = {
    "/proc/sys/net/core/rmem_max": "212992",
    "/proc/sys/net/core/wmem_max": "212992",
    "/proc/sys/net/ipv4/neigh/default/gc_thresh1": "128",
    "/proc/sys/net/ipv4/neigh/default/gc_thresh2": "512",
    "/proc/sys/net/ipv4/neigh/default/gc_thresh3": "1024",
}
# What images have set where the lab's own values are as wanted.
AWAY_FROM_WANTED = {
    "/proc/sys/vm/zone_reclaim_mode": "1",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always",
}
# A mount of the network is in the table at the end of a boot alone, just before remote-fs.target.
NFS_AWAY, NFS_MOUNTED = "/var/nfs-away", "/var/nfs-mounted"
NFS_AWAY_UNIT = f"""\
[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/cp --no-preserve=all {NFS_AWAY} /proc/fs/nfsfs/volumes
[Install]
WantedBy=sysinit.target
"""
NFS_MOUNTED_UNIT = f"""\
[Unit]
After=nfs-away.service
Before=remote-fs.target
[Service]
Type=oneshot
ExecStart=/bin/sleep 1
ExecStart=/bin/cp --no-preserve=all {NFS_MOUNTED} /proc/fs/nfsfs/volumes
[Install]
WantedBy=remote-fs.target
"""
NFS_VOLUMES = "NV SERVER PORT DEV FSID FSC\nv4 0a000001 801 0:52 d3f1c2a8:0 no\n"
ARM = "processor\t: 0\nCPU implementer\t: {}\nCPU part\t: {}\n"


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """One kind of host.

    Args:
        profile: what follows from what it is.
        host: its name is the flavour's.
        services: units that it has enabled and running at first.
        only: kinds of items that it is there for; () for all of its profile.
    """

    profile: str
    host: LabHost
    services: tuple[str, ...]
    only: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.host.name


def flavours() -> tuple[Flavour, ...]:
    """Every kind of host that has a profile of its own; Grace once more with the tools of Red Hat's family."""
    return (_bare_metal(), _cloud(), _amd(), grace(), _grace_of_red_hat(), _kunpeng())


def without_anything() -> LabHost:
    """A locked-down host that has nothing of what accelerators need, nor a clock service or a boot loader."""
    units = ("systemd-timesyncd.service", "apt-daily-upgrade.timer", "irqbalance.service")
    return LabHost(
        name="bare",
        address="192.0.2.20",
        kernel="locked-down",
        has_cpufreq=False,
        hidden=(
            *(f"{UNITS}/{unit}" for unit in units),
            "/etc/default/grub.d", "/usr/bin/dpkg-query", JEMALLOC,
        ),
    )  # fmt: skip


def grace() -> Flavour:
    """Grace with NVIDIA GPUs whose memory is a NUMA node, as GB200 trays with Ubuntu are."""
    host = LabHost(
        name="grace-nvidia",
        address="192.0.2.4",
        files={**_of_any_host("debian"), **_of_debian(), **_of_nvidia(), **_of_grace()},
        knobs={"/proc/sys/kernel/arch": "aarch64", **NETWORK_OF_ALL, **AWAY_FROM_WANTED},
        registers={"/sys/bus/pci/devices/0000:00:01.0/config": space(ON)},
        device_nodes=("/dev/nvidia0",),
        units=(BOOT_UNIT,),
    )
    return Flavour(
        profile="grace-nvidia", host=host, services=("irqbalance", "apt-daily-upgrade.timer")
    )


def _grace_of_red_hat() -> Flavour:
    host = LabHost(
        name="grace-red-hat",
        address="192.0.2.5",
        files={**_of_any_host("red-hat"), **_of_red_hat(), **_of_nvidia(), **_of_grace()},
        knobs={"/proc/sys/kernel/arch": "aarch64"},
        device_nodes=("/dev/nvidia0",),
        units=(BOOT_UNIT,),
        hidden=("/usr/sbin/update-initramfs",),
    )
    only = ("kernel-arguments", "module-options")
    return Flavour(profile="grace-nvidia", host=host, services=(), only=only)


def _bare_metal() -> Flavour:
    files = {
        **_of_any_host("debian"), **_of_debian(), **_of_nvidia(),
        "/proc/cpuinfo": _text("processor\t: 0\nflags\t\t: fpu vme\n"),
        "/proc/fs/nfsfs/volumes": _text(NFS_VOLUMES),
        NFS_AWAY: _text(NFS_VOLUMES.splitlines(keepends=True)[0]),
        NFS_MOUNTED: _text(NFS_VOLUMES),
        f"{UNITS}/nfs-away.service": _text(NFS_AWAY_UNIT),
        f"{UNITS}/nfs-mounted.service": _text(NFS_MOUNTED_UNIT),
        "/sys/class/dmi/id/bios_version": _text("1.2.3\n"),
        "/sys/kernel/iommu_groups/0/type": _text("DMA\n"),
    }  # fmt: skip
    host = LabHost(
        name="x86-baremetal-nvidia",
        address="192.0.2.1",
        files=files,
        knobs={"/proc/sys/kernel/arch": "x86_64", **NETWORK_OF_ALL, **AWAY_FROM_WANTED},
        registers={"/sys/bus/pci/devices/0000:00:01.0/config": space(ON)},
        device_nodes=("/dev/nvidia0",),
        units=(BOOT_UNIT,),
    )
    services = (
        "irqbalance",
        "apt-daily-upgrade.timer",
        "remote-fs.target",
        "nfs-away",
        "nfs-mounted",
    )
    return Flavour(profile="x86-baremetal-nvidia", host=host, services=services)


def _cloud() -> Flavour:
    files = {
        **_of_any_host("debian"), **_of_debian(), **_of_nvidia(),
        "/proc/cpuinfo": _text("processor\t: 0\nflags\t\t: fpu vme hypervisor\n"),
        f"{UNITS}/{ENGINE_UNIT}.service": _text(ENGINE_TEXT),
    }  # fmt: skip
    host = LabHost(
        name="x86-vm-nvidia",
        address="192.0.2.2",
        has_cpufreq=False,
        files=files,
        knobs={
            "/proc/sys/kernel/arch": "x86_64",
            **NETWORK_OF_ALL,
            "/proc/sys/net/ipv4/tcp_rmem": "4096 131072 6291456",
            "/proc/sys/net/ipv4/tcp_wmem": "4096 16384 4194304",
        },
        device_nodes=("/dev/nvidia0",),
        units=(BOOT_UNIT,),
    )
    services = ("apt-daily-upgrade.timer", f"{ENGINE_UNIT}0")
    return Flavour(profile="x86-vm-nvidia", host=host, services=services)


def _amd() -> Flavour:
    files = {
        **_of_any_host("debian"), **_of_debian(),
        "/proc/cpuinfo": _text("processor\t: 0\nflags\t\t: fpu vme\n"),
        f"{AMDGPU}/current_memory_partition": _text("NPS1\n"),
    }  # fmt: skip
    host = LabHost(
        name="x86-amd",
        address="192.0.2.3",
        files=files,
        knobs={
            "/proc/sys/kernel/arch": "x86_64",
            **NETWORK_OF_ALL,
            f"{AMDGPU}/current_compute_partition": "CPX",
        },
        registers={"/sys/bus/pci/devices/0000:00:01.0/config": space(ON)},
        device_nodes=("/dev/kfd",),
        units=(BOOT_UNIT,),
    )
    return Flavour(profile="x86-amd", host=host, services=("apt-daily-upgrade.timer",))


def _kunpeng() -> Flavour:
    """Atlas 800 with openEuler 22.03, A2 and A3 alike: they have one profile, and no item asks which it is."""
    files = {
        **_of_any_host("red-hat"), **_of_red_hat(),
        "/proc/cpuinfo": _text(ARM.format("0x48", "0xd01")),
        f"{UNITS}/dnf-automatic.timer": _text(TIMER_TEXT),
        f"{UNITS}/dnf-automatic.service": _text(SERVICE_TEXT),
    }  # fmt: skip
    host = LabHost(
        name="kunpeng-ascend",
        address="192.0.2.6",
        kernel="sysctl",
        files=files,
        knobs={
            "/proc/sys/kernel/arch": "aarch64",
            **NETWORK_OF_ALL,
            "/proc/sys/net/ipv4/ip_local_reserved_ports": "2703",
        },
        registers={"/sys/bus/pci/devices/0000:00:01.0/config": space(ON)},
        device_nodes=("/dev/davinci0",),
        binds=(Bind(source=_library(), target=JEMALLOC),),
        units=(BOOT_UNIT,),
        hidden=(f"{UNITS}/apt-daily-upgrade.timer",),
    )
    services = ("irqbalance", "dnf-automatic.timer")
    return Flavour(profile="kunpeng-ascend", host=host, services=services)


def _of_any_host(family: str) -> Mapping[str, LabFile]:
    clock = "chrony" if family == "debian" else "chronyd"
    return {
        **_tools(TOOLS),
        **{f"{UNITS}/{name}.service": _text(SERVICE_TEXT) for name in ("irqbalance", clock)},
        "/usr/local/sbin/moe-lab-boot": LabFile(content=BOOT.encode(), mode=0o755),
        f"{UNITS}/{BOOT_UNIT}": _text(BOOT_UNIT_TEXT),
        "/proc/cmdline": _text("BOOT_IMAGE=/vmlinuz ro\n"),
        "/etc/modules-load.d/modules.conf": _text("#\n"),
        "/etc/modprobe.d/image.conf": _text("#\n"),
        "/sys/module/ib_core/initstate": _text("live\n"),
    }


def _of_debian() -> Mapping[str, LabFile]:
    return {
        **_tools(DEBIAN_TOOLS),
        "/etc/default/grub.d/50-image.cfg": _text("#\n"),
        "/var/packages": _text("ii nvidia-driver-580\nii amdgpu-dkms\nrc linux-image-6.1\n"),
        f"{UNITS}/apt-daily-upgrade.timer": _text(TIMER_TEXT),
        f"{UNITS}/apt-daily-upgrade.service": _text(SERVICE_TEXT),
    }


def _of_red_hat() -> Mapping[str, LabFile]:
    entry = "title Linux\nversion {0}\nlinux /vmlinuz-{0}\ninitrd /initramfs-{0}.img\noptions ro quiet\n"
    return {
        **_tools({"dracut": RED_HAT_TOOLS["dracut"]}),
        "/usr/sbin/grubby": _tool("grubby", RED_HAT_TOOLS["grubby"]),
        "/opt/grubby.py": LabFile(content=Path(simulated_grubby.__file__).read_bytes()),
        **{
            f"{BOOT_ENTRIES}/{name}.conf": _text(entry.format(name)) for name in ("6.6", "0-rescue")
        },
    }


def _of_nvidia() -> Mapping[str, LabFile]:
    daemons = ("nvidia-persistenced", "nvidia-fabricmanager")
    return {
        **_tools(NVIDIA_TOOLS),
        **{f"{UNITS}/{name}.service": _text(SERVICE_TEXT) for name in daemons},
        "/proc/driver/nvidia/params": _text("CreateImexChannel0: 0\n"),
    }


def _of_grace() -> Mapping[str, LabFile]:
    return {
        f"{UNITS}/nvidia-imex.service": _text(SERVICE_TEXT),
        "/proc/cpuinfo": _text(ARM.format("0x41", "0xd4f")),
        "/etc/nvidia-imex/nodes_config.cfg": _text("192.0.2.7\n"),
        "/sys/devices/system/node/has_memory": _text("0-1\n"),
        "/sys/devices/system/node/has_cpu": _text("0\n"),
    }


def _library() -> str:
    """A library of the machine's that any program can be started with."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return next(line.split()[-1] for line in maps if line.endswith("/libc.so.6"))


def _tools(bodies: Mapping[str, str]) -> dict[str, LabFile]:
    return {f"/usr/local/sbin/{name}": _tool(name, body) for name, body in bodies.items()}


def _tool(name: str, body: str) -> LabFile:
    text = TOOL.format(name=name, fault=TOOL_FAULT, body=body)
    return LabFile(content=text.encode(), mode=0o755)


def _text(content: str) -> LabFile:
    return LabFile(content=content.encode())
