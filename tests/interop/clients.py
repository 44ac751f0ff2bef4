"""clients.py - programs of others against a running `bitrain serve`: openai's client and lm-evaluation-harness. Called by clients.sh.

    clients.py SERVE_JSON FOLDER QUESTIONS.jsonl EVAL_JSON TEXTS.jsonl

SERVE_JSON: what `bitrain serve --json` prints. FOLDER: the model's tokenizer in Hugging Face's form. EVAL_JSON: what `bitrain eval --task arc` says
of the questions: the harness must count the same answers right. TEXTS: rows with a "text"; their bits per byte must be those of
transformers over FOLDER to five digits.
"""
import concurrent.futures, json, os, sys

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1", LMEVAL_LOG_LEVEL="ERROR")
served, folder, questions, ours, texts = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4]), sys.argv[5]
os.environ["OPENAI_API_KEY"] = served["token"]
import openai
import lm_eval

faults = 0


def check(what, ok, figure=""):
    global faults
    faults += not ok
    print(f"| {what} | {'yes' if ok else 'NO'} | {figure} |", flush=True)


def refused(kind, call):
    try:
        call()
    except kind as e:
        return str(e.body["message"] if isinstance(e.body, dict) else e)
    return ""


def with_openai():
    model = served["model"]
    client = openai.OpenAI(base_url=served["base_url"] + "/v1", api_key=served["token"])
    check("models.list names the model", client.models.list().data[0].id == model)
    r = client.completions.create(model=model, prompt="In the beginning", max_tokens=8, temperature=0, logprobs=3, echo=True)
    n = len(r.choices[0].logprobs.tokens)
    check("completions: echo and log probabilities", r.choices[0].text.startswith("In the beginning") and n == r.usage.total_tokens, f"{n} tokens")
    messages = [{"role": "user", "content": "Hello"}]
    ask = dict(model=model, messages=messages, max_tokens=12, temperature=0, seed=1)
    whole = client.chat.completions.create(**ask).choices[0].message.content
    text, usage = "", None
    for chunk in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        text += "".join(c.delta.content or "" for c in chunk.choices)
    check("chat: the stream is the whole answer, with its usage", text == whole and usage is not None, f"{usage and usage.completion_tokens} tokens")
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        same = sum(pool.map(lambda i: client.chat.completions.create(**ask).choices[0].message.content == whole, range(256)))
    check("chat: 64 at once say the same as one", same == 256, f"{same} of 256")
    check("a prompt that is too long is refused", "context" in refused(openai.BadRequestError, lambda: client.completions.create(model=model, prompt="x " * 9999)))
    check("a wrong key is refused", refused(openai.AuthenticationError, lambda: openai.OpenAI(base_url=served["base_url"] + "/v1", api_key="no").models.list()) != "")


def with_harness():
    task = dict(task="arc_here", dataset_path="json", dataset_kwargs={"data_files": {"test": questions}}, output_type="multiple_choice", test_split="test",
                doc_to_text="Question: {{question}}\nAnswer:", doc_to_target="{{choices.label.index(answerKey)}}", doc_to_choice="{{choices.text}}",
                metric_list=[{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_norm")])
    for concurrent_requests, batch in ((1, 1), (8, 4)):
        args = dict(model=served["model"], base_url=served["base_url"] + "/v1/completions", tokenizer_backend="huggingface", tokenizer=folder,
                    num_concurrent=concurrent_requests, max_length=256)
        result = lm_eval.simple_evaluate(model="local-completions", model_args=args, tasks=[task], bootstrap_iters=0, batch_size=batch)["results"]["arc_here"]
        theirs = {m: result[m + ",none"] for m in ("acc", "acc_norm")}
        check(f"lm_eval: acc and acc_norm of `bitrain eval` ({concurrent_requests} at once, batches of {batch})", all(abs(theirs[m] - ours[m]) < 1e-9 for m in theirs),
              f"{theirs['acc']:.4f}, {theirs['acc_norm']:.4f} of {ours['questions']} questions")


# local-completions reads windows of two tokens less than its max_length, hf of max_length
def bits_per_byte():
    task = dict(task="texts_here", dataset_path="json", dataset_kwargs={"data_files": {"test": texts}}, output_type="loglikelihood_rolling", test_split="test",
                doc_to_text="", doc_to_target="{{text}}", metric_list=[{"metric": "bits_per_byte"}])
    figures = []
    for model, args in (("local-completions", dict(model=served["model"], base_url=served["base_url"] + "/v1/completions", tokenizer_backend="huggingface",
                                                   tokenizer=folder, max_length=256)), ("hf", dict(pretrained=folder, dtype="float32", max_length=254))):
        result = lm_eval.simple_evaluate(model=model, model_args=args, tasks=[task], bootstrap_iters=0, batch_size=1, device="cpu" if model == "hf" else None)
        figures.append(result["results"]["texts_here"]["bits_per_byte,none"])
    check("lm_eval: bits per byte of transformers", abs(figures[0] - figures[1]) < 5e-5 * figures[1], f"{figures[0]:.6f}, transformers {figures[1]:.6f}")


print(f"openai {openai.__version__}, lm_eval {lm_eval.__version__ if hasattr(lm_eval, '__version__') else ''}\n\n| what | holds | figure |\n|---|---|---|")
with_openai()
with_harness()
bits_per_byte()
sys.exit(1 if faults else 0)
