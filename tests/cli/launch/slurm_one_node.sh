#!/bin/sh
# slurm_one_node.sh: a private one-node Slurm on loopback, for tests (root; Debian 12: slurm-wlm 22.05.8, munge 0.5.15).
#   slurm_one_node.sh start DIR [CPUS]     starts munged, slurmctld, slurmd; prints "export SLURM_CONF=DIR/slurm.conf"
#   slurm_one_node.sh stop  DIR            cancels all jobs, ends exactly these three daemons, removes DIR
# rc 0 ok, 77 not possible here (the reason is on stderr; a test prints it and skips), 1 failed.
# No systemd, no cgroups, no database; own ports, own munge key and socket: it disturbs no other Slurm.
set -u
skip() { echo "skip: $*" >&2; exit 77; }
dir=${2:-}; [ -n "$dir" ] || { sed -n 2,6p "$0" >&2; exit 2; }
case $1 in
start)
	[ "$(id -u)" = 0 ] || skip "needs root (slurmd starts steps as the submitting user)"
	PATH=$PATH:/usr/sbin:/sbin
	for p in munged mungekey slurmctld slurmd sinfo srun; do command -v $p >/dev/null || skip "no $p (apt-get install slurm-wlm munge)"; done
	mkdir -p "$dir" || exit 1
	dir=$(cd "$dir" && pwd); chmod 755 "$dir"
	mkdir -p "$dir/state" "$dir/spool" "$dir/munge"; chmod 700 "$dir/state"; chmod 711 "$dir/munge"
	cpus=${3:-$(nproc)} # more than there are: the node stays "inval"
	mem=$(awk '/MemTotal/{print int($2/1024*0.9)}' /proc/meminfo)
	host=$(hostname -s); port=$((20000 + $$ % 20000))
	mungekey -c -k "$dir/munge/key" 2>/dev/null || dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 2>/dev/null
	chmod 600 "$dir/munge/key"
	# --force: a parent directory that others may write (/tmp) is otherwise refused
	munged --force --socket="$dir/munge/sock" --key-file="$dir/munge/key" --pid-file="$dir/munge/pid" \
		--log-file="$dir/munge/log" --seed-file="$dir/munge/seed" 2>"$dir/munge/err" || skip "munged: $(tail -1 "$dir/munge/err")"
	cat >"$dir/slurm.conf" <<EOF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/sock
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
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
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$mem State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
EOF
	export SLURM_CONF="$dir/slurm.conf"
	slurmctld -f "$SLURM_CONF" || skip "slurmctld: $(tail -1 "$dir/slurmctld.log")"
	slurmd -f "$SLURM_CONF" -N "$host" || skip "slurmd: $(tail -1 "$dir/slurmd.log")"
	i=0
	while [ "$(sinfo -h -o %T 2>/dev/null)" != idle ]; do
		i=$((i + 1)); [ $i -gt 150 ] && { sinfo >&2; tail -3 "$dir/slurmd.log" >&2; "$0" stop "$dir"; skip "the node did not become idle in 15 s"; }
		sleep 0.1
	done
	echo "export SLURM_CONF=$SLURM_CONF";;
stop)
	[ -f "$dir/slurm.conf" ] || exit 0
	export SLURM_CONF="$dir/slurm.conf"
	scancel --full -u root 2>/dev/null; sleep 0.5
	for f in slurmd.pid slurmctld.pid munge/pid; do
		p=$(cat "$dir/$f" 2>/dev/null) || continue
		kill "$p" 2>/dev/null
		i=0; while kill -0 "$p" 2>/dev/null && [ $i -lt 50 ]; do sleep 0.1; i=$((i + 1)); done
		kill -9 "$p" 2>/dev/null
	done
	rm -rf "$dir";;
*) sed -n 2,6p "$0" >&2; exit 2;;
esac
