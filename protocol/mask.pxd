"""Masks: what becomes of texts that consumers do not get as they are."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    DIGEST = 32                # bytes of SHA-256


cdef enum MaskKind:
    NO_MASK = 0
    NULL_MASK = 1
    SHA256_MASK = 2
    HMAC_MASK = 3
    FIRST_MASK = 4


cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct EVP_MD
    ctypedef struct EVP_MD_CTX
    const EVP_MD *EVP_sha256()
    EVP_MD_CTX *EVP_MD_CTX_new()
    void EVP_MD_CTX_free(EVP_MD_CTX *context)
    int EVP_DigestInit_ex(EVP_MD_CTX *context, const EVP_MD *type, void *engine)
    int EVP_DigestUpdate(EVP_MD_CTX *context, const void *data, size_t size)
    int EVP_DigestFinal_ex(EVP_MD_CTX *context, uint8_t *digest, unsigned int *size)
    int EVP_MD_CTX_copy_ex(EVP_MD_CTX *to, const EVP_MD_CTX *source)


cdef class Masker:             # not to be shared between threads
    cdef EVP_MD_CTX *plain     # nothing hashed yet
    cdef EVP_MD_CTX *inner     # ... the secret for HMAC's inner hash
    cdef EVP_MD_CTX *outer     # ... and for its outer one
    cdef EVP_MD_CTX *work
    cdef uint8_t[2 * DIGEST] text

    # Replaces a text in UTF-8 by what a mask, not NULL_MASK, leaves of it; False if it cannot be hashed. It is valid
    # until the next call. characters: of FIRST_MASK.
    cdef bint apply(self, int kind, uint32_t characters, const uint8_t **text, size_t *size) noexcept nogil
