// Whether text is UTF-8, many bytes at a time.
//
// In well-formed text (Unicode, table 3-7) each byte fits the three before it:
//   80 to BF occur if, and only if, a sequence goes on: after C0 to FF for one byte, after E0 to FF for two, after
//   F0 to FF for three; after E0 only A0 to BF, after ED only 80 to 9F, after F0 only 90 to BF, after F4 only 80 to 8F;
//   C0, C1 and F5 to FF never occur.
// So a block is checked by itself, with the three bytes before it, and blocks may overlap.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__) && !defined(UTF8_PORTABLE)
#include <immintrin.h>
#endif

namespace utf8 {

constexpr size_t BLOCK = 16;
constexpr size_t BEFORE = 3;

// Whether no sequence goes on after the end.
inline bool is_complete(const uint8_t *end) {
    return end[-1] < 0xC0 && end[-2] < 0xE0 && end[-3] < 0xF0;
}

// In the vectors that gcc and clang have for every processor.
namespace portable {

typedef uint8_t Block __attribute__((vector_size(BLOCK)));

inline Block load(const uint8_t *p) {
    Block block;
    memcpy(&block, p, BLOCK);
    return block;
}

// Not 0 where a byte does not fit.
inline Block faults(const uint8_t *p) {
    const Block byte = load(p), first = load(p - 1), second = load(p - 2), third = load(p - 3);
    const Block goes_on = (Block)((first >= 0xC0) | (second >= 0xE0) | (third >= 0xF0));
    const Block continues = (Block)((byte & 0xC0) == 0x80);
    const Block is_below_a0 = (Block)((byte & 0x20) == 0);
    const Block is_below_90 = (Block)((byte & 0x30) == 0);
    return (goes_on ^ continues)
        | ((Block)(first == 0xE0) & is_below_a0) | ((Block)(first == 0xED) & ~is_below_a0)
        | ((Block)(first == 0xF0) & is_below_90) | ((Block)(first == 0xF4) & ~is_below_90)
        | (Block)((byte & 0xFE) == 0xC0) | (Block)(byte >= 0xF5);
}

inline bool is_rest_valid(const uint8_t *p, const uint8_t *end) {
    Block found = faults(end - BLOCK);
    for (; end - p > (ptrdiff_t)BLOCK; p += BLOCK)
        found |= faults(p);
    uint64_t halves[2];
    memcpy(halves, &found, BLOCK);
    return !(halves[0] | halves[1]) && is_complete(end);
}

} // namespace portable

#if defined(__x86_64__) && !defined(UTF8_PORTABLE)
// What is wrong with two bytes is told by three of their four halves: a fault is one that all three allow
// (J. Keiser, D. Lemire: Validating UTF-8 in less than one instruction per byte, 2021).
namespace avx2 {

enum : uint8_t {
    CUT = 1 << 0,       // C0 to FF, and no continuation
    STRAY = 1 << 1,     // ASCII, and a continuation
    OVERLONG_2 = 1 << 2,  // C0 or C1
    OVERLONG_3 = 1 << 3,  // E0, 80 to 9F
    SURROGATE = 1 << 4, // ED, A0 to BF
    TOO_LARGE = 1 << 5, // F4, 90 to BF; F5 to FF, 90 to BF
    OVERLONG_4 = 1 << 6,  // F0, 80 to 8F; and F5 to FF, 80 to 8F
    TWO = 1 << 7,       // two continuations: right where a sequence of three or four bytes goes on
    ANY = CUT | STRAY | TWO
};
alignas(16) constexpr uint8_t FIRST_HIGH[16] = {
    STRAY, STRAY, STRAY, STRAY, STRAY, STRAY, STRAY, STRAY, TWO, TWO, TWO, TWO,
    CUT | OVERLONG_2, CUT, CUT | OVERLONG_3 | SURROGATE, CUT | TOO_LARGE | OVERLONG_4
};
alignas(16) constexpr uint8_t FIRST_LOW[16] = {
    ANY | OVERLONG_2 | OVERLONG_3 | OVERLONG_4, ANY | OVERLONG_2, ANY, ANY, ANY | TOO_LARGE,
    ANY | TOO_LARGE | OVERLONG_4, ANY | TOO_LARGE | OVERLONG_4, ANY | TOO_LARGE | OVERLONG_4,
    ANY | TOO_LARGE | OVERLONG_4, ANY | TOO_LARGE | OVERLONG_4, ANY | TOO_LARGE | OVERLONG_4,
    ANY | TOO_LARGE | OVERLONG_4, ANY | TOO_LARGE | OVERLONG_4, ANY | TOO_LARGE | OVERLONG_4 | SURROGATE,
    ANY | TOO_LARGE | OVERLONG_4, ANY | TOO_LARGE | OVERLONG_4
};
constexpr uint8_t CONTINUES = STRAY | TWO | OVERLONG_2;
alignas(16) constexpr uint8_t BYTE_HIGH[16] = {
    CUT, CUT, CUT, CUT, CUT, CUT, CUT, CUT,
    CONTINUES | OVERLONG_3 | OVERLONG_4, CONTINUES | OVERLONG_3 | TOO_LARGE,
    CONTINUES | SURROGATE | TOO_LARGE, CONTINUES | SURROGATE | TOO_LARGE, CUT, CUT, CUT, CUT
};

typedef uint8_t Block __attribute__((vector_size(32)));

__attribute__((target("avx2"))) inline Block load(const uint8_t *p) {
    Block block;
    memcpy(&block, p, sizeof block);
    return block;
}

__attribute__((target("avx2"))) inline Block look_up(const uint8_t *table, Block halves) {
    return (Block)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(*(const __m128i *)table), (__m256i)halves);
}

__attribute__((target("avx2"))) inline Block faults(const uint8_t *p) {
    const Block byte = load(p), first = load(p - 1), second = load(p - 2), third = load(p - 3);
    const Block goes_on = (Block)((second >= 0xE0) | (third >= 0xF0));
    const Block pair = look_up(FIRST_HIGH, first >> 4) & look_up(FIRST_LOW, first & 15) & look_up(BYTE_HIGH, byte >> 4);
    return pair ^ (goes_on & (uint8_t)TWO);
}

__attribute__((target("avx2"))) inline bool is_rest_valid(const uint8_t *p, const uint8_t *end) {
    Block found = faults(end - sizeof(Block));
    for (; end - p > (ptrdiff_t)sizeof(Block); p += sizeof(Block))
        found |= faults(p);
    return _mm256_testz_si256((__m256i)found, (__m256i)found) && is_complete(end);
}

} // namespace avx2
#endif

// Whether the text from p to the end is well-formed, if what precedes p is. At least BEFORE + BLOCK bytes precede the
// end, at least BEFORE bytes precede p.
inline bool is_rest_valid(const uint8_t *p, const uint8_t *end) {
#if defined(__x86_64__) && !defined(UTF8_PORTABLE)
    if (end - p >= 32 && __builtin_cpu_supports("avx2"))
        return avx2::is_rest_valid(p, end);
#endif
    return portable::is_rest_valid(p, end);
}

} // namespace utf8
