#!/usr/bin/env bash
# ctest: timeout=60
# Alerts of a run: a rule that becomes true gives one event and starts the command once; the end of the run is an alert;
# an invalid rule, and a webhook without curl, are refused with one line before anything begins.
. "$BT_SRC/tests/cli/train_lib.sh"

code 2 train "${tiny[@]}" --steps 3 --name bad --alert 'loss >'
says "alert.rules: 'loss >' is not an alert rule"
code 2 train "${tiny[@]}" --steps 3 --name bad --set alert.webhook=ftp://x
says "must begin with http"
[ ! -e runs/bad ] || fault "a refused run left its folder"

# Five evaluations: the loss is above 0 at every step, which is reported once.
ok train "${tiny[@]}" --steps 5 --name told --alert 'loss > 0' 'tokens_per_s < 0' 'run done' \
    --set alert.command="echo \"\$BITRAIN_RUN|\$BITRAIN_STEP|\$BITRAIN_ALERT\" >> $tmp/alerts"
says "event=alert level=warning step=1 text=\"loss > 0: it is "
for i in $(seq 100); do
    [ "$(grep -c . alerts 2>/dev/null)" = 2 ] && break # the commands run in the background
    sleep 0.05
done
sort alerts >sorted
grep -qE '^told\|1\|loss > 0: it is [0-9.]+ at step 1$' sorted || fault "no alert of the loss: $(cat sorted)"
grep -qx 'told|5|run done: after step 5' sorted || fault "no alert of the end: $(cat sorted)"
[ "$(q "SELECT count(*) FROM events WHERE run='told' AND kind='alert'")" = 2 ] || fault "events: $(q "SELECT title FROM events WHERE kind='alert'")"

# A webhook receives JSON; a script in place of curl records its input.
mkdir bin
printf '#!/bin/sh\nwhile [ "$1" != --data-binary ]; do shift; done\necho "$2 $4" >%s/posted.new && mv %s/posted.new %s/posted\n' "$tmp" "$tmp" "$tmp" >bin/curl
chmod +x bin/curl
PATH="$tmp/bin:$PATH" ok train "${tiny[@]}" --steps 2 --name hook --alert 'run done' --set alert.webhook=http://127.0.0.1:9/x
for i in $(seq 100); do [ -e posted ] && break; sleep 0.05; done
[ "$(cat posted 2>/dev/null)" = '{"run":"hook","step":2,"alert":"run done: after step 2"} http://127.0.0.1:9/x' ] || fault "posted: $(cat posted)"
finish
