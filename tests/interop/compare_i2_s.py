"""compare_i2_s.py - decodes I2_S by bitnet.cpp's layout (quantize_i2_s for x86 in its src/ggml-bitnet-mad.cpp) and compares it with the same model in f32
as the package gguf reads it; prints a row of a table.

    compare_i2_s.py I2_S.gguf F32.gguf

Codes 0, 1, 2 are -1, 0, 1 times the scale. A block of 128 codes has 32 bytes: byte j has the codes j, 32 + j, 64 + j and 96 + j from the upper two bits
to the lower ones. Behind the codes of a tensor are 32 bytes, which begin with the scale in fp32. The package gguf does not know type 36.
"""
import struct, sys
import gguf, numpy as np

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

class File:
    def __init__(self, path):
        self.data, self.at = open(path, "rb").read(), 8
        n_tensors, n_keys = self.number("<q"), self.number("<q")
        align = 32
        for _ in range(n_keys):
            key, kind = self.text(), self.number("<I")
            value = self.value(kind)
            if key == "general.alignment": align = value
        self.tensors = {}
        for _ in range(n_tensors):
            name, dims = self.text(), self.number("<I")
            shape = [self.number("<Q") for _ in range(dims)]
            self.tensors[name] = (shape[::-1], self.number("<I"), self.number("<Q"))
        self.base = (self.at + align - 1) // align * align
    def number(self, form):
        x, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return x
    def text(self):
        n = self.number("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()
    def value(self, kind):
        if kind == 8: return self.text()
        if kind == 9:
            kind, n = self.number("<I"), self.number("<Q")
            return [self.value(kind) for _ in range(n)]
        self.at += SIZES[kind]
        return int.from_bytes(self.data[self.at - SIZES[kind]:self.at], "little")
    def i2_s(self, name):
        shape, _, at = self.tensors[name]
        n = int(np.prod(shape))
        raw = np.frombuffer(self.data, np.uint8, n // 4, self.base + at).reshape(-1, 32)
        scale, = struct.unpack_from("<f", self.data, self.base + at + n // 4)
        codes = np.stack([raw >> 6, raw >> 4 & 3, raw >> 2 & 3, raw & 3], 1).astype(np.float32) - 1
        return (codes * np.float32(scale)).reshape(shape)

coded = File(sys.argv[1])
floats = {t.name: t.data for t in gguf.GGUFReader(sys.argv[2]).tensors}
names = [n for n, t in coded.tensors.items() if t[1] == 36]
worst = max(float(np.abs(coded.i2_s(n) - floats[n]).max() / np.abs(floats[n]).max()) for n in names)
ok = len(names) > 0 and worst < 1e-6
print(f"| {sys.argv[1].split('/')[-1]} | I2_S by bitnet.cpp's layout, {len(names)} tensors | weights, relative: {worst:.2g} | 1e-06 | | {'yes' if ok else 'NO'} |", flush=True)
sys.exit(0 if ok else 1)
