"""Simulated hosts: real sshd and systemd, own address, root file system and kernel knobs each.

Every host is a set of namespaces with systemd as PID 1 over an overlay of this machine's root file
system. `/proc/sys/{kernel,vm,fs}`, the CPU frequency governor, transparent huge pages and debugfs
are answered by a FUSE server, per host; `/proc/sys/net` is real. Nothing shows outside: no network
interface, mount or process namespace of the machine's own. It needs root.

    from infra.rehearsal.lab.hosts import Bind, LabFile, LabHost, LabUser
    from infra.rehearsal.lab.starting import attach_lab, list_labs, open_lab, start_lab, stop_lab

    with open_lab(directory) as lab:          # ends with this process, however that ends
        lab.boot([LabHost(name="prefill-0", address="192.0.2.1", files={...})])
        lab.wait_ready(30)
        subprocess.run(["ssh", "-F", lab.ssh_config, "prefill-0", "sudo", "id"])
        lab.run("prefill-0", ["systemctl", "is-system-running"])       # without SSH
        lab.inject("prefill-0", "vm.swappiness", "EIO")
        lab.cut("prefill-0"); lab.heal("prefill-0"); lab.reset("prefill-0")

`Lab` (client.py) has every method. Its folder holds `ssh_config` (for ssh, Fabric and Ansible),
`known_hosts`, `id_ed25519` and `lab.log`; whatever else is put there goes with it.

How it is made, from the outside in:

    starting     spawns the supervisor; finds, lists and stops labs of other processes (registry)
    client       what a user does to a lab, over a unix socket (control)
    supervisor   outer process: dies with its starter unless kept, removes everything
    inside       PID 1 of the lab: answers requests (loop, connecting, entering)
    fleet        the hosts and their states; boot, layers, network, cgroups build them
    knob_server  answers the knobs (knobs, knob_tree, knobfs)
    proxy        the ProxyCommand
"""
