"""Continue a long prompt with a full cache, and with one that keeps 64 states of every KV head.

python examples/bounded_cache.py [FOLDER of a model and its tokenizer] [--smoke]
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, LlamaConfig, LlamaForCausalLM

from plait.hf import BoundedCache

folders = [word for word in sys.argv[1:] if word != "--smoke"]
new_tokens = 8 if "--smoke" in sys.argv else 40
text = "A bounded cache forgets what its policy ranks lowest. " * 30
if folders:
    tokenizer = AutoTokenizer.from_pretrained(folders[0], local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folders[0], local_files_only=True).eval()
    prompt = tokenizer(text, return_tensors="pt")["input_ids"]
else:  # a model with random weights, which reads bytes
    sizes = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, eos_token_id=None)).eval()
    prompt = torch.tensor([list(text.encode())])

full = DynamicCache(config=model.config)
bounded = BoundedCache(model, window=32, capacity=28, sinks=4, policy="h2o")  # 64 slots
for name, cache in {"full cache": full, "64 slots": bounded}.items():
    options = {"past_key_values": cache, "max_new_tokens": new_tokens, "do_sample": False}
    ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options, pad_token_id=0)
    new = ids[0, prompt.shape[1] :].tolist()
    size = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    print(f"{name}: {cache.get_seq_length():,} tokens read, {size / 1024:,.0f} KiB of keys and values")
    print("  " + (repr(tokenizer.decode(new)) if folders else f"bytes {new}"))
