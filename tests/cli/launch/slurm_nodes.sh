#!/bin/sh
# slurm_nodes.sh: a private Slurm on loopback, for tests (root; Debian 12: slurm-wlm 22.05.8, munge 0.5.15). Several
# nodes are several slurmd of this machine, each with its own name, port and spool folder; their processes share the
# processors of the machine.
#         slurm_nodes.sh start DIR [CPUS [NODES]]  starts munged, slurmctld and a slurmd per node, and prints "export
#     SLURM_CONF=DIR/slurm.conf"
#         slurm_nodes.sh stop  DIR                 cancels all jobs, ends exactly these daemons and removes DIR
# A single node has the machine's name; several are n1, n2, ...; each has CPUS processors.
# Exit code: 0 success, 77 not possible here (the reason is on stderr; a test prints it and skips), 1 failure. It uses
# no systemd, cgroups or database, and has its own ports, munge key and socket, so it does not disturb another Slurm.
set -u
skip() { echo "skip: $*" >&2; exit 77; }
dir=${2:-}; [ -n "$dir" ] || { sed -n 2,9p "$0" >&2; exit 2; }
case $1 in
start)
	[ "$(id -u)" = 0 ] || skip "needs root (slurmd starts steps as the submitting user)"
	PATH=$PATH:/usr/sbin:/sbin
	for p in munged mungekey slurmctld slurmd sinfo srun; do command -v $p >/dev/null || skip "no $p (apt-get install slurm-wlm munge)"; done
	mkdir -p "$dir" || exit 1
	dir=$(cd "$dir" && pwd); chmod 755 "$dir"
	mkdir -p "$dir/state" "$dir/munge"; chmod 700 "$dir/state"; chmod 711 "$dir/munge"
	cpus=${3:-$(nproc)} # a node with more processors than the machine has remains "inval"
	n=${4:-1}
	mem=$(awk -v n="$n" '/MemTotal/{print int($2/1024*0.9/n)}' /proc/meminfo)
	host=$(hostname -s); port=$((20000 + $$ % 20000))
	mungekey -c -k "$dir/munge/key" 2>/dev/null || dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 2>/dev/null
	chmod 600 "$dir/munge/key"
	# --force: a parent directory writable by other users (/tmp) is otherwise refused
	munged --force --socket="$dir/munge/sock" --key-file="$dir/munge/key" --pid-file="$dir/munge/pid" \
		--log-file="$dir/munge/log" --seed-file="$dir/munge/seed" 2>"$dir/munge/err" || skip "munged: $(tail -1 "$dir/munge/err")"
	names=$host
	[ "$n" -gt 1 ] && names=$(seq -f 'n%g' "$n")
	cat >"$dir/slurm.conf" <<EOS
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/sock
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
MpiDefault=pmix
ReturnToService=2
KillWait=30
JobRequeue=1
EOS
	i=0
	for name in $names; do
		i=$((i + 1))
		mkdir -p "$dir/spool.$name"
		echo "NodeName=$name NodeHostname=$name NodeAddr=127.0.0.1 Port=$((port + i)) CPUs=$cpus RealMemory=$mem State=UNKNOWN" >>"$dir/slurm.conf"
	done
	echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4" >>"$dir/slurm.conf"
	export SLURM_CONF="$dir/slurm.conf"
	slurmctld -f "$SLURM_CONF" || skip "slurmctld: $(tail -1 "$dir/slurmctld.log")"
	for name in $names; do
		slurmd -f "$SLURM_CONF" -N "$name" || skip "slurmd of $name: $(tail -1 "$dir/slurmd.$name.log")"
	done
	i=0
	while [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$')" != "$n" ]; do
		i=$((i + 1))
		[ $i -gt 150 ] && { sinfo -N >&2; tail -n 3 "$dir"/slurmd.*.log >&2; "$0" stop "$dir"; skip "the nodes did not become idle in 15 s"; }
		sleep 0.1
	done
	echo "export SLURM_CONF=$SLURM_CONF";;
stop)
	[ -f "$dir/slurm.conf" ] || exit 0
	export SLURM_CONF="$dir/slurm.conf"
	scancel --full -u root 2>/dev/null; sleep 0.5
	for f in "$dir"/slurmd.*.pid "$dir/slurmctld.pid" "$dir/munge/pid"; do
		p=$(cat "$f" 2>/dev/null) || continue
		kill "$p" 2>/dev/null
		i=0; while kill -0 "$p" 2>/dev/null && [ $i -lt 50 ]; do sleep 0.1; i=$((i + 1)); done
		kill -9 "$p" 2>/dev/null
	done
	rm -rf "$dir";;
*) sed -n 2,9p "$0" >&2; exit 2;;
esac
