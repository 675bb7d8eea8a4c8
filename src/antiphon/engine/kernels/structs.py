"""The structures of the C interface, field by field as in `native/antiphon_kernels.h`."""

import ctypes as c

#: The version of the interface that these structures are of.
ABI = 1
#: Tokens in a block of the cache.
BLOCK_SIZE = 16

F32, F16, BF16 = 0, 1, 2
P4, P6, P8 = 16, 17, 18


class AkWeight(c.Structure):
    _fields_ = (
        ("format", c.c_int32),
        ("rows", c.c_int64),
        ("cols", c.c_int64),
        ("data", c.c_void_p),
        ("bias", c.c_void_p),
    )


class AkSegment(c.Structure):
    _fields_ = (
        ("row", c.c_int32),
        ("n", c.c_int32),
        ("position", c.c_int32),
        ("reserved", c.c_int32),
        ("blocks", c.c_void_p),
    )


class AkCache(c.Structure):
    _fields_ = (
        ("keys", c.c_void_p),
        ("values", c.c_void_p),
        ("kv_heads", c.c_int32),
        ("key_size", c.c_int32),
        ("value_size", c.c_int32),
        ("reserved", c.c_int32),
    )


class AkAttention(c.Structure):
    _fields_ = (
        ("heads", c.c_int32),
        ("scale", c.c_float),
        ("softcap", c.c_float),
        ("window", c.c_int32),
        ("sinks", c.c_void_p),
    )


class AkLayer(c.Structure):
    _fields_ = (
        ("q", AkWeight),
        ("k", AkWeight),
        ("v", AkWeight),
        ("o", AkWeight),
        ("gate", AkWeight),
        ("up", AkWeight),
        ("down", AkWeight),
        ("attention_norm", c.c_void_p),
        ("ffn_norm", c.c_void_p),
        ("q_norm", c.c_void_p),
        ("k_norm", c.c_void_p),
        ("rotates", c.c_int32),
        ("window", c.c_int32),
    )


class AkDecoder(c.Structure):
    _fields_ = (
        ("num_layers", c.c_int32),
        ("hidden", c.c_int32),
        ("ffn", c.c_int32),
        ("heads", c.c_int32),
        ("kv_heads", c.c_int32),
        ("head_size", c.c_int32),
        ("rotary", c.c_int32),
        ("activation", c.c_int32),
        ("eps", c.c_float),
        ("scale", c.c_float),
        ("rope_scale", c.c_float),
        ("residual_scale", c.c_float),
        ("embedding_scale", c.c_float),
        ("logit_scale", c.c_float),
        ("inv_freq", c.c_void_p),
        ("layers", c.POINTER(AkLayer)),
        ("embedding", AkWeight),
        ("head", AkWeight),
        ("norm", c.c_void_p),
        ("cache", c.c_void_p),
        ("num_blocks", c.c_int64),
    )


class AkBatch(c.Structure):
    _fields_ = (
        ("m", c.c_int32),
        ("tokens", c.c_void_p),
        ("segments", c.c_void_p),
        ("num_segments", c.c_int32),
        ("logit_rows", c.c_void_p),
        ("num_logits", c.c_int32),
    )


class AkSampling(c.Structure):
    _fields_ = (
        ("temperature", c.c_float),
        ("top_p", c.c_float),
        ("min_p", c.c_float),
        ("top_k", c.c_int32),
        ("presence_penalty", c.c_float),
        ("frequency_penalty", c.c_float),
        ("num_counted", c.c_int32),
        ("counted", c.c_void_p),
        ("counts", c.c_void_p),
        ("num_biased", c.c_int32),
        ("biased", c.c_void_p),
        ("biases", c.c_void_p),
        ("allowed", c.c_void_p),
        ("seed", c.c_uint64),
        ("position", c.c_uint64),
        ("num_top", c.c_int32),
    )
