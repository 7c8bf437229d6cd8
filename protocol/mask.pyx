"""Masks: what becomes of texts that consumers do not get as they are.

A hash is that of the text as it would be delivered, in UTF-8, in hexadecimal. HMAC is that of RFC 2104 with SHA-256;
its two keyed beginnings are hashed once.
"""

import hashlib

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    BLOCK = 64                 # bytes that SHA-256 takes at once

cdef uint8_t[16] HEX = b"0123456789abcdef"

KINDS = {"null": NULL_MASK, "sha256": SHA256_MASK, "hmac": HMAC_MASK, "first": FIRST_MASK}


@cython.no_gc
cdef class Masker:
    """Masks texts, one after the other."""

    def __init__(self, bytes secret not None):
        """With the secret of `hmac`; empty where that is not used."""
        key = hashlib.sha256(secret).digest() if len(secret) > BLOCK else secret
        key = key.ljust(BLOCK, b"\0")
        self.plain = begun(b"")
        self.inner = begun(bytes([it ^ 0x36 for it in key]))
        self.outer = begun(bytes([it ^ 0x5C for it in key]))
        self.work = begun(b"")

    def __dealloc__(self):
        EVP_MD_CTX_free(self.plain)
        EVP_MD_CTX_free(self.inner)
        EVP_MD_CTX_free(self.outer)
        EVP_MD_CTX_free(self.work)

    cdef bint apply(self, int kind, uint32_t characters, const uint8_t **text, size_t *size) noexcept nogil:
        cdef uint8_t[DIGEST] digest
        cdef size_t i = 0
        cdef int place
        if kind == FIRST_MASK:
            while i < size[0] and (characters or text[0][i] & 0xC0 == 0x80):  # no character ends in the middle
                characters -= text[0][i] & 0xC0 != 0x80
                i += 1
            size[0] = i
            return True
        if not finish(self.inner if kind == HMAC_MASK else self.plain, self.work, text[0], size[0], digest) or (
            kind == HMAC_MASK and not finish(self.outer, self.work, digest, DIGEST, digest)
        ):
            return False
        for place in range(DIGEST):
            self.text[2 * place] = HEX[digest[place] >> 4]
            self.text[2 * place + 1] = HEX[digest[place] & 15]
        text[0] = self.text
        size[0] = 2 * DIGEST
        return True


cdef EVP_MD_CTX *begun(bytes data) except NULL:
    cdef EVP_MD_CTX *context = EVP_MD_CTX_new()
    if context == NULL:
        raise MemoryError
    if not EVP_DigestInit_ex(context, EVP_sha256(), NULL) or not EVP_DigestUpdate(
        context, PyBytes_AS_STRING(data), len(data)
    ):
        EVP_MD_CTX_free(context)
        raise MemoryError
    return context


cdef inline bint finish(
    const EVP_MD_CTX *begun, EVP_MD_CTX *work, const uint8_t *data, size_t size, uint8_t *digest
) noexcept nogil:
    return (
        EVP_MD_CTX_copy_ex(work, begun) and EVP_DigestUpdate(work, data, size)
        and EVP_DigestFinal_ex(work, digest, NULL)
    )
