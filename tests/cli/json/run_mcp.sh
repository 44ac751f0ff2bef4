#!/usr/bin/env bash
# ctest: timeout=200 labels=mpi
# `bitrain mcp`: messages of the Model Context Protocol and their replies. Tools read runs; those that start and control
# runs need --control; an agent's loop of paired runs ends with a winner and its confidence. The server answers invalid messages with an error and continues.
. "$BT_SRC/tests/cli/train_lib.sh"
ok train "${tiny[@]}" --ranks 1 --steps 3 --name first --quiet
cat >client.py <<'PY'
import json, subprocess, sys, time
bad = 0
def fault(what):
    global bad
    bad += 1
    print("FAULT:", what)
class Server:
    def __init__(self, *words):
        self.p = subprocess.Popen([sys.argv[1], "mcp", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.n = 0
    def line(self, text):
        self.p.stdin.write(text + "\n"); self.p.stdin.flush()
    def ask(self, method, **params):
        self.n += 1
        self.line(json.dumps({"jsonrpc": "2.0", "id": self.n, "method": method, "params": params}))
        r = json.loads(self.p.stdout.readline())
        if r.get("id") != self.n or r.get("jsonrpc") != "2.0": fault("response of another request: %s" % r)
        return r
    def call(self, tool, **arguments):
        r = self.ask("tools/call", name=tool, arguments=arguments)
        return r["error"] if "error" in r else (r["result"]["isError"], r["result"]["content"][0]["text"])
    def end(self):
        self.p.stdin.close()
        if self.p.wait(20) != 0: fault("exit status %d" % self.p.returncode)

s = Server()
hello = s.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"})["result"]
if hello["protocolVersion"] != "2025-06-18" or "tools" not in hello["capabilities"] or hello["serverInfo"]["name"] != "bitrain": fault(hello)
if s.ask("initialize", protocolVersion="1999-01-01")["result"]["protocolVersion"] != "2025-11-25": fault("an unknown version")
s.line('{"jsonrpc":"2.0","method":"notifications/initialized"}')
tools = {t["name"]: t for t in s.ask("tools/list")["result"]["tools"]}
want = {"list_runs", "show_run", "autopsy", "query", "metrics", "curve", "events", "compare", "compare_groups", "settings", "evaluate", "generate"}
if set(tools) != want: fault("tools: %s" % sorted(tools))
if tools["curve"]["inputSchema"]["required"] != ["run", "metric"] or not tools["curve"]["annotations"]["readOnlyHint"]: fault(tools["curve"])
if s.ask("ping")["result"] != {}: fault("ping")
def answer(tool, **arguments):
    failed, text = s.call(tool, **arguments)
    if failed: fault("%s: %s" % (tool, text)); return {}
    return json.loads(text)
if "first" not in json.dumps(answer("list_runs")): fault("list_runs")
if "first" not in json.dumps(answer("show_run", run="first")): fault("show_run")
if answer("query", sql="SELECT run, steps FROM runs", limit=5)["rows"] != [["first", 3]]: fault(answer("query", sql="SELECT run, steps FROM runs"))
if not any("loss" in r for r in answer("metrics")["rows"]): fault("metrics")
if "series" not in json.dumps(answer("curve", run="first", metric="loss")): fault("curve")
if answer("events", run="it's'; DROP TABLE x; --")["rows"] != []: fault("events of a strange name")
if not isinstance(answer("events", run="first")["rows"], list): fault("events")
if "nats" not in json.dumps(answer("evaluate", model="first", tokens=256)): fault("evaluate")
failed, text = s.call("settings")
if failed or "optim.lr" not in text: fault("settings: " + text[:200])
for tool, arguments, words in [("show_run", {"run": "none"}, "none"), ("query", {"sql": "DELETE FROM runs"}, "exit status"), ("query", {"sql": "SELECT"}, "exit status")]:
    failed, text = s.call(tool, **arguments)
    if not failed or words not in text or "exit status" not in text: fault("%s %s: %s" % (tool, arguments, text))
for tool, arguments, words in [("nothing", {}, "no tool 'nothing'"), ("show_run", {}, "needs 'run'"), ("show_run", {"run": 3}, "'run' is no string"),
                               ("show_run", {"run": "--help"}, "begins with '-'"), ("show_run", {"run": "a", "x": 1}, "no argument 'x'"),
                               ("steer", {"run": "first", "verb": "stop"}, "--control"), ("start", {"preset": "nano"}, "--control")]:
    e = s.call(tool, **arguments)
    if not isinstance(e, dict) or e["code"] != -32602 or words not in e["message"]: fault("%s %s: %s" % (tool, arguments, e))
for line, code in [("{", -32700), ("[1]", -32700), ('{"jsonrpc":"2.0","id":7}', -32600), ('{"jsonrpc":"2.0","id":7,"method":"x/y"}', -32601),
                   ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}', -32602), ('{"a":"' + "x" * (5 << 20) + '"}', -32700)]:
    s.line(line)
    r = json.loads(s.p.stdout.readline())
    if r["error"]["code"] != code: fault("%.60s: %s" % (line, r))
s.line("")
if s.ask("ping")["result"] != {}: fault("the server does not go on")
s.end()

s = Server("--control")
names = {t["name"] for t in s.ask("tools/list")["result"]["tools"]}
if names != want | {"start", "steer"}: fault("tools with --control: %s" % sorted(names))
settings = {"model.layers": 1, "model.d_model": 32, "model.heads": 2, "model.kv_heads": 2, "model.d_ff": 64, "model.seq_len": 32, "launch.threads": 1}
failed, text = s.call("start", name="second", preset="nano", data=["synth:chain"], steps=1000000, ranks=1, settings=settings)
if failed or json.loads(text).get("run") != "second": fault("start: " + text)
failed, text = s.call("start", preset="nano", settings={"no.setting": 1})
if not failed or "no.setting" not in text: fault("start with a wrong setting: " + text)
failed, text = s.call("steer", run="second", verb="stop")
if failed or "second" not in text: fault("steer: " + text)
if "second" not in json.dumps(answer("list_runs", filter=["run:second"])): fault("list_runs with a filter")

# The loop of an agent (cli/mcp/README.md): runs of two candidates with the same seeds, the best one and its confidence.
names = ["loop-%s-%d" % (lr, seed) for seed in (1, 2, 3) for lr in ("low", "high")]
for name in names:
    rate, seed = {"low": 1e-6, "high": 3e-2}[name.split("-")[1]], int(name[-1])
    failed, text = s.call("start", name=name, preset="nano", data=["synth:chain"], steps=40, ranks=1, settings=dict(settings, **{"optim.warmup": 0, "optim.lr": rate, "run.seed": seed, "train.batch_tokens": 128}))
    if failed: fault("start of %s: %s" % (name, text))
    while answer("query", sql="SELECT count(*) FROM runs WHERE run = '%s' AND state = 'done'" % name)["rows"] != [[1]]:
        state = answer("query", sql="SELECT state FROM runs WHERE run = '%s'" % name)["rows"]
        if state and state[0][0] not in ("running", "done"): fault("%s is %s" % (name, state)); break
        time.sleep(0.1)
r = answer("compare_groups", runs=names, group_by="optim.lr", paired="run.seed", metric="loss")
loss = dict(answer("query", sql="SELECT run, avg(loss) FROM steps WHERE run LIKE 'loop-%' AND step >= 20 GROUP BY run")["rows"])
apart = [loss["loop-low-%d" % i] - loss["loop-high-%d" % i] for i in (1, 2, 3)]
mean = sum(apart) / 3
error = (sum((x - mean) ** 2 for x in apart) / 6) ** 0.5
within = mean / error / (2 + (mean / error) ** 2) ** 0.5 # Student's t with two degrees of freedom
behind = [g for g in r["groups"] if g["pairs"]]
if len(behind) != 1 or behind[0]["pairs"] != 3: fault("pairs: %s" % r)
elif abs(behind[0]["behind"] - mean) > 1e-6 * mean or abs(behind[0]["behind_error"] - error) > 1e-4 * error or abs(behind[0]["confidence"] - within) > 1e-6: fault("%s: %s" % (r, (mean, error, within)))
if float(r["winner"]["settings"]["optim.lr"]) != 3e-2 or not 0.9 < r["winner"]["confidence"] < 1 or abs(r["winner"]["confidence"] - within) > 1e-6: fault("winner: %s" % r)
failed, text = s.call("compare_groups", runs=names, group_by="train.batch_tokens", paired="run.seed")
if not failed or "have the same settings and run.seed=1" not in text: fault("two runs of one pair: " + text)
failed, text = s.call("compare_groups", runs=names, group_by="optim.lr", paired="no.seed")
if not failed or "--paired: no setting 'no.seed'" not in text: fault("a wrong pair: " + text)
s.end()
sys.exit(bad > 0)
PY
command -v python3 >/dev/null || skip "no Python speaks to the server"
python3 client.py "$BITRAIN" || fault "the client's checks"
[ $faults -eq 0 ] && echo "an agent's program can read, start and stop runs"
exit $faults
