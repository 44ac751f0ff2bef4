#!/bin/bash
# ctest: timeout=240 labels=web,browser,mpi
# The first page in a real browser: message of a failed run and the button that restarts it, the initial range of a
# chart, its readout, heat maps of equal and of many ranks, a link that could not be measured, the search in settings.
# The test needs the programs that run_browser.sh needs.
. "$(dirname "$0")/browser_lib.sh"
"$BT_SYNTH" "$BITRAIN_STORE" failed ranks=2 steps=150 live=1 || exit 1
"$BT_SYNTH" "$BITRAIN_STORE" long ranks=2 steps=3000 || exit 1
"$BT_SYNTH" "$BITRAIN_STORE" behind ranks=2 steps=90 live=1 || exit 1
"$BT_SYNTH" "$BITRAIN_STORE" range ranks=1 steps=200 || exit 1
"$BT_SYNTH" "$BITRAIN_STORE" hub ranks=1 steps=20 || exit 1
"$BT_SYNTH" "$BITRAIN_STORE" many ranks=256 steps=40 jitter=0.05 load=3 || exit 1
"$BITRAIN" train --name trained --preset nano --data synth:chain --ranks 1 --threads 1 --batch-tokens 512 --seq-len 64 --steps 12 \
    --stop-after 4 --set train.eval_tokens=1024 >"$dir/train.out" 2>&1 || { cat "$dir/train.out"; exit 1; }
sqlite3 "$BITRAIN_STORE" <<'SQL' || exit 1
UPDATE step SET val_loss = val_loss + 0.5 WHERE step > 99 AND aid IN (SELECT a.id FROM attempt a JOIN run r ON r.id = a.run WHERE r.name = 'failed');
UPDATE run SET (val_loss, best_val, best_val_step) = (SELECT max(val_loss) FILTER (WHERE step = 149), min(val_loss), 99 FROM step WHERE aid IN (SELECT id FROM attempt WHERE run = run.id)) WHERE name = 'failed';
UPDATE run SET host = 'elsewhere' WHERE name = 'behind';
UPDATE run SET state = 'failed', exit_kind = 'signal', ended_us = last_us WHERE name = 'failed';
UPDATE run_doc SET config = '{"model.preset":{"value":"nano"},"optim.lr":{"value":0.002},"optim.schedule":{"value":"cosine"},"model.seq_len":{"value":256},"data.path":{"value":["book.txt"]},"train.steps":{"value":200}}' WHERE run = (SELECT id FROM run WHERE name = 'failed');
INSERT INTO fact SELECT id, 'data.tokens', '409600', 0 FROM run WHERE name = 'failed';
INSERT INTO fact SELECT id, 'batch_tokens', '4096', 0 FROM run WHERE name = 'failed';
UPDATE step SET loss = loss + 90 WHERE step < 3 AND aid IN (SELECT a.id FROM attempt a JOIN run r ON r.id = a.run WHERE r.name = 'failed');
INSERT INTO event(run, t_us, step, rank, kind, level, title) SELECT id, last_us, 149, 1, 'failure', 2, 'rank 1 was ended by signal 9 (Killed) <b id=hacked>' FROM run WHERE name = 'failed';
INSERT INTO event(run, t_us, step, kind, level, title, body) SELECT id, last_us, 49, 'sample', 0, 'writes', '{"prompt":"Now","text":"\n  the of of"}' FROM run WHERE name = 'failed';
INSERT INTO event(run, t_us, step, kind, level, title, body) SELECT id, last_us, 99, 'sample', 0, 'writes', '{"prompt":"Now","text":"In the beginning <img src=x onerror=hacked=1>\nGod"}' FROM run WHERE name = 'failed';
INSERT INTO fact SELECT id, 'islands.settings', '{}', 0 FROM run WHERE name = 'hub';
INSERT INTO island_stat SELECT a.id, 19, i.value, 1, 40, 30, 0, 1000, 4096, 0, 16, 2 FROM attempt a JOIN run r ON r.id = a.run JOIN json_each('["long", "elsewhere"]') i WHERE r.name = 'hub';
DELETE FROM fact WHERE key LIKE 'link.%' AND run = (SELECT id FROM run WHERE name = 'many');
INSERT INTO fact SELECT id, 'link.dp.measured', 'no: the machine was busy', 0 FROM run WHERE name = 'many';
UPDATE run_doc SET config = '{"optim.schedule":{"value":"range"}}' WHERE run = (SELECT id FROM run WHERE name = 'range');
UPDATE step SET lr = 1e-6 * pow(1e6, step / 199.), loss = 5 - 2 / (1 + exp(-6 * (step / 199. - 0.5))) WHERE aid IN (SELECT a.id FROM attempt a JOIN run r ON r.id = a.run WHERE r.name = 'range');
SQL
timeout 220 node "$here/first_page.mjs"
