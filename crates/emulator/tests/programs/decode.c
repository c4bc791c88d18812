/* Instructions as assemblers write them, and what decode.c makes of them; prints those of which it makes something else. */
#include "decode.h"

#include <stdio.h>
#include <string.h>

struct instruction {
    const char *text, *bytes;
    size_t size;
    enum np_shape shape;
    unsigned step;
};
#define IS(text, bytes, shape) {text, bytes, sizeof bytes - 1, NP_SHAPE_##shape, 0}
#define REPEATS(text, bytes, step) {text, bytes, sizeof bytes - 1, NP_SHAPE_ANY, step}

static const struct instruction list[] = {
    IS("mov rax, [rdi]", "\x48\x8b\x07", ONE),
    IS("mov rax, [rsp + 8]", "\x48\x8b\x44\x24\x08", STACK),
    IS("mov rax, [rsp + rcx * 8]", "\x48\x8b\x04\xcc", ONE),
    IS("mov rax, [r12]", "\x49\x8b\x04\x24", ONE),
    IS("add [rdi], eax", "\x01\x07", UPDATE),
    IS("cmp [rdi], eax", "\x39\x07", ONE),
    IS("add eax, ecx", "\x01\xc8", NONE),
    IS("lea rax, [rdi + 8]", "\x48\x8d\x47\x08", NONE),
    IS("prefetcht0 [rdi]", "\x0f\x18\x0f", NONE),
    IS("push rbp", "\x55", STACK),
    IS("lock xadd [rdi], eax", "\xf0\x0f\xc1\x07", LOCKED),
    IS("xchg [rdi], eax", "\x87\x07", LOCKED),
    IS("lock cmpxchg16b [rdi]", "\xf0\x48\x0f\xc7\x0f", LOCKED),
    IS("bts [rdi], rax", "\x48\x0f\xab\x07", ANY),
    IS("lock bts [rdi], rax", "\xf0\x48\x0f\xab\x07", LOCKED),
    IS("lock bts dword [rdi], 3", "\xf0\x0f\xba\x2f\x03", LOCKED),
    IS("movntdq [rdi], xmm0", "\x66\x0f\xe7\x07", ANY),
    IS("maskmovdqu xmm0, xmm1", "\x66\x0f\xf7\xc1", ANY),
    IS("vmaskmovdqu xmm0, xmm1", "\xc5\xf9\xf7\xc1", ANY),
    IS("vmovdqa ymm0, [rsp + 32]", "\xc5\xfd\x6f\x44\x24\x20", STACK),
    IS("vmovdqa ymm0, [rdi]", "\xc5\xfd\x6f\x07", ANY),
    IS("vaddps ymm0, ymm1, ymm2", "\xc5\xf4\x58\xc2", NONE),
    IS("vzeroupper", "\xc5\xf8\x77", ANY),
    IS("vpgatherdd xmm0, [rsp + xmm4 * 4], xmm5", "\xc4\xe2\x51\x90\x04\xa4", ANY),
    IS("vgatherqpd ymm0, [rdi + ymm1 * 8], ymm2", "\xc4\xe2\xed\x93\x04\xcf", ANY),
    IS("vpmaskmovd [rdi], ymm0, ymm1", "\xc4\xe2\x7d\x8e\x0f", ANY),
    IS("movsb", "\xa4", ANY),
    IS("repe cmpsb", "\xf3\xa6", ANY),
    IS("repne scasb", "\xf2\xae", ANY),
    IS("pause", "\xf3\x90", NONE),
    IS("shld [rdi], eax, 3", "\x0f\xa4\x07\x03", UPDATE),
    REPEATS("rep movsb", "\xf3\xa4", 1),
    REPEATS("rep movsw", "\x66\xf3\xa5", 2),
    REPEATS("rep movsd", "\xf3\xa5", 4),
    REPEATS("rep movsq", "\xf3\x48\xa5", 8),
    REPEATS("rep movsb [rdi], fs:[rsi]", "\x64\xf3\xa4", 1),
    REPEATS("rep stosb", "\xf3\xaa", 1),
    REPEATS("rep stosq", "\xf3\x48\xab", 8),
};

int main(void) {
    int wrong = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        uint8_t bytes[16];
        memcpy(bytes, list[i].bytes, list[i].size);
        enum np_shape shape = np_decode(bytes, list[i].size);
        unsigned step = np_decode_step(bytes, list[i].size);
        if (shape == list[i].shape && step == list[i].step) continue;
        printf("%s: shape %d, step %u\n", list[i].text, (int)shape, step);
        wrong++;
    }
    return wrong != 0;
}
