// The features of a flat product of SRHTs in one pass: rows are read once per factor and features are written once.
//
// Compiled for every LOG = log2 of the padded dimension N. Four numbers of a "slot" are transformed side by side: two rows of a
// complex sketch (re, im, re, im), or four rows of a real one. For each group of rows, a block
// 1. transforms: one warp takes one factor and half a slot, N/32 numbers per lane. The strides N/2 ... 32 are butterflies in
//    registers; then lanes exchange numbers through shared memory (or by shuffles, if N < 1024) for the strides 16 ... 1, and
//    store the result to its place in shared memory;
// 2. gathers: each thread multiplies the factors of four neighbouring outputs and writes them.
// The places of transformed values are chosen on the host so that few accesses collide in a bank (`place.rs`). Additions are in
// the processor's order and never contracted: the same bits.
//
// Pooled features stay in registers until a group of rows ends. Few of them have a kernel of their own, for sketches of gradients: every thread has
// outputs, factors that are much shorter than the longest are transformed as what they are, and values that no output samples are not stored.
//
// Bound: the data pipe of shared memory. Per group of rows and factor, in wavefronts of 128 bytes: N/8 for each of exchange out
// and in, N/4 for the places (half a slot at a time), m/8 for the gathers if none collide; and the features, m/16 in all. Device memory reads N and
// writes D numbers per row.
#include "srht.cuh"

DEVICE void fetch(const float4* slots, ushort4 from, float4* r) {
    r[0] = slot(slots, from.x);
    r[1] = slot(slots, from.y);
    r[2] = slot(slots, from.z);
    r[3] = slot(slots, from.w);
}

// Multiplies four neighbouring outputs by the factors after the first. `next` points to their places in the second factor; those
// in the next one are looked up while values are multiplied. The list ends with an unused factor.
template <bool COMPLEX>
DEVICE void multiply(const Arguments& args, const float4* slots, const ushort4* next, float4* r) {
    const int step = args.outputs_padded / 4;
    ushort4 from = __ldg(next);
#pragma unroll 4
    for (int factor = 1; factor < args.factors; factor++) {
        next += step;
        slots += N;
        const ushort4 now = from;
        from = __ldg(next);
        r[0] = times<COMPLEX>(r[0], slot(slots, now.x));
        r[1] = times<COMPLEX>(r[1], slot(slots, now.y));
        r[2] = times<COMPLEX>(r[2], slot(slots, now.z));
        r[3] = times<COMPLEX>(r[3], slot(slots, now.w));
    }
}

DEVICE u32 pair_of_halves(int element, float low, float high) {
    u32 pair;
    if (element == F16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Writes four numbers of one row from this column on, as many as there are. `bad` becomes NaN if a number does not fit.
// PLAIN: float32, aligned, parts apart.
template <bool PLAIN>
DEVICE void put(const Arguments& args, char* row, int column, int count, float a, float b, float c, float d, float& bad) {
    bad = __fmaf_rn(a, 0.0f, __fmaf_rn(b, 0.0f, __fmaf_rn(c, 0.0f, __fmaf_rn(d, 0.0f, bad))));
    if (PLAIN || args.out_element == F32) {
        float* out = (float*)row + column;
        if (PLAIN || args.aligned) {
            __stcs((float4*)out, make_float4(a, b, c, d));
        } else {
            const float all[4] = {a, b, c, d};
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (k < count) out[k] = all[k];
        }
    } else {
        u16* out = (u16*)row + column;
        const float limit = too_large(args.out_element);
        if (fmaxf(fmaxf(fabsf(a), fabsf(b)), fmaxf(fabsf(c), fabsf(d))) >= limit) bad = not_a_number();
        const uint2 all = make_uint2(pair_of_halves(args.out_element, a, b), pair_of_halves(args.out_element, c, d));
        if (args.aligned) {
            __stcs((uint2*)out, all);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (k < count) out[k] = (u16)((k < 2 ? all.x : all.y) >> (16 * (k & 1)));
        }
    }
}

// Four outputs of one row: real, or complex as apart or alternating parts.
template <bool COMPLEX, bool PLAIN>
DEVICE void put_outputs(const Arguments& args, char* row, int output, int count, const float* re, const float* im, float& bad) {
    const float s = args.scale;
    if (!COMPLEX || PLAIN || !args.interleaved) {
        put<PLAIN>(args, row, output, count, re[0] * s, re[1] * s, re[2] * s, re[3] * s, bad);
        if (COMPLEX) put<PLAIN>(args, row, args.outputs + output, count, im[0] * s, im[1] * s, im[2] * s, im[3] * s, bad);
    } else {
        put<PLAIN>(args, row, 2 * output, 2 * count, re[0] * s, im[0] * s, re[1] * s, im[1] * s, bad);
        if (count > 2) put<PLAIN>(args, row, 2 * output + 4, 2 * count - 4, re[2] * s, im[2] * s, re[3] * s, im[3] * s, bad);
    }
}

template <bool COMPLEX, bool PLAIN>
DEVICE void features(const Arguments& args) {
    extern __shared__ float4 slots[];
    enum { ROWS = COMPLEX ? 2 : 4 };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int groups = args.outputs_padded / 4;
    const ushort4* gathered = (const ushort4*)args.gathered;
    for (i64 row = (i64)blockIdx.x * ROWS; row < args.rows; row += (i64)gridDim.x * ROWS) {
        all_transforms<COMPLEX, false>(args, slots, row, args.rows, warp, lane);
        prefetch<ROWS>(args, row + (i64)gridDim.x * ROWS, threadIdx.x, blockDim.x);
        char* out[ROWS];
        float bad[ROWS] = {};
#pragma unroll
        for (int which = 0; which < ROWS; which++) out[which] = row_of(args, row + which);
        // Two groups with the same slots of the first factor share its values.
        int group = threadIdx.x, within = threadIdx.x;
        while (true) {
            while (within >= args.period) {
                within -= args.period;
                group += args.period;
            }
            if (group >= groups) break;
            float4 start[4];
            fetch(slots, __ldg(gathered + group), start);
#pragma unroll
            for (int copy = 0; copy < 2; copy++) {
                const int now = group + copy * args.period;
                if (now >= groups) break;
                float4 r[4] = {start[0], start[1], start[2], start[3]};
                multiply<COMPLEX>(args, slots, gathered + groups + now, r);
                const int output = 4 * now, count = PLAIN ? 4 : min(4, args.outputs - output);
                const float planes[4][4] = {{r[0].x, r[1].x, r[2].x, r[3].x},
                                            {r[0].y, r[1].y, r[2].y, r[3].y},
                                            {r[0].z, r[1].z, r[2].z, r[3].z},
                                            {r[0].w, r[1].w, r[2].w, r[3].w}};
#pragma unroll
                for (int which = 0; which < ROWS; which++) {
                    const float* re = planes[COMPLEX ? 2 * which : which];
                    const float* im = planes[COMPLEX ? 2 * which + 1 : which];
                    if (row + which < args.rows) put_outputs<COMPLEX, PLAIN>(args, out[which], output, count, re, im, bad[which]);
                }
            }
            group += blockDim.x;
            within += blockDim.x;
        }
#pragma unroll
        for (int which = 0; which < ROWS; which++)
            if (bad[which] != bad[which]) atomicMin(args.bad_row, (u64)(args.first_row + row + which));
        __syncthreads();
    }
}

// Sums of the features of groups of rows, never written row by row. A block takes one group of rows and STEPS groups of four
// outputs for each thread, whose sums stay in registers.
template <bool COMPLEX>
DEVICE void pooled(const Arguments& args) {
    extern __shared__ float4 slots[];
    enum { ROWS = COMPLEX ? 2 : 4, STEPS = 4 };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int groups = args.outputs_padded / 4, first = blockIdx.y * STEPS * blockDim.x + threadIdx.x;
    const ushort4* gathered = (const ushort4*)args.gathered;
    const i64 begin = args.starts[blockIdx.x], end = args.starts[blockIdx.x + 1];
    float re[STEPS][4] = {}, im[COMPLEX ? STEPS : 1][4] = {};
    for (i64 row = begin; row < end; row += ROWS) {
        all_transforms<COMPLEX, false>(args, slots, row, end, warp, lane);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const int thread = first + step * blockDim.x;
            if (thread < groups) {
                float4 r[4];
                fetch(slots, __ldg(gathered + thread), r);
                multiply<COMPLEX>(args, slots, gathered + groups + thread, r);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    if (COMPLEX) {
                        re[step][k] += r[k].x + r[k].z;
                        im[COMPLEX ? step : 0][k] += r[k].y + r[k].w;
                    } else {
                        re[step][k] += (r[k].x + r[k].y) + (r[k].z + r[k].w);
                    }
                }
            }
        }
        __syncthreads();
    }
    float bad = 0;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int thread = first + step * blockDim.x;
        if (thread < groups) {
            const int output = 4 * thread, count = min(4, args.outputs - output);
            put_outputs<COMPLEX, false>(args, row_of(args, blockIdx.x), output, count, re[step], im[COMPLEX ? step : 0], bad);
        }
    }
    if (bad != bad) atomicMin(args.bad_row, (u64)(args.first_row + begin));
}

// One output of one row or group, which may not fit: `bad` becomes NaN then.
template <bool COMPLEX>
DEVICE void put_one(const Arguments& args, i64 row, int output, float re, float im, float& bad) {
    const int parts = COMPLEX ? 2 : 1;
#pragma unroll
    for (int part = 0; part < parts; part++) {
        const float value = (part == 0 ? re : im) * args.scale;
        const int column = COMPLEX && args.interleaved ? 2 * output + part : part * args.outputs + output;
        write<float>(args.out, args.out_element, row * args.stride + column, value);
        if (!fits<float>(args.out_element, value)) bad = not_a_number();
    }
}

// The same for few outputs. A thread takes single ones, so that every thread has some, and remembers where its values of the first two factors lie.
template <bool COMPLEX>
DEVICE void pooled_few(const Arguments& args) {
    extern __shared__ float4 slots[];
    enum { ROWS = COMPLEX ? 2 : 4, STEPS = 4 };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // Eight lanes read every fourth output at a time, as in `features`: their places are apart.
    const int first = 32 * warp + 4 * (lane % 8) + lane / 8;
    const i64 begin = args.starts[blockIdx.x], end = args.starts[blockIdx.x + 1];
    u32 at[STEPS];
    float re[STEPS] = {}, im[STEPS] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int output = min(first + step * (int)blockDim.x, args.outputs - 1);
        // The list ends with an unused factor.
        at[step] = args.gathered[output] | (u32)args.gathered[args.outputs_padded + output] << 16;
    }
    for (i64 row = begin; row < end; row += ROWS) {
        all_transforms<COMPLEX, true>(args, slots, row, end, warp, lane);
        prefetch<ROWS>(args, row + ROWS, threadIdx.x, blockDim.x);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const int output = first + step * blockDim.x;
            if (output < args.outputs) {
                float4 r = slot(slots, (u16)at[step]);
                if (args.factors > 1) r = times<COMPLEX>(r, slot(slots + N, (u16)(at[step] >> 16)));
                for (int factor = 2; factor < args.factors; factor++) {
                    const u16 place = __ldg(args.gathered + factor * args.outputs_padded + output);
                    r = times<COMPLEX>(r, slot(slots + factor * N, place));
                }
                re[step] += COMPLEX ? r.x + r.z : (r.x + r.y) + (r.z + r.w);
                im[step] += r.y + r.w;
            }
        }
        __syncthreads();
    }
    float bad = 0;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int output = first + step * blockDim.x;
        if (output < args.outputs) put_one<COMPLEX>(args, blockIdx.x, output, re[step], im[step], bad);
    }
    if (bad != bad) atomicMin(args.bad_row, (u64)(args.first_row + begin));
}

extern "C" __global__ void BOUNDS features_real(const __grid_constant__ Arguments args) { features<false, false>(args); }
extern "C" __global__ void BOUNDS features_real_plain(const __grid_constant__ Arguments args) { features<false, true>(args); }
extern "C" __global__ void BOUNDS features_complex(const __grid_constant__ Arguments args) { features<true, false>(args); }
extern "C" __global__ void BOUNDS features_complex_plain(const __grid_constant__ Arguments args) { features<true, true>(args); }
extern "C" __global__ void POOLED_BOUNDS pooled_real(const __grid_constant__ Arguments args) { pooled<false>(args); }
extern "C" __global__ void POOLED_BOUNDS pooled_complex(const __grid_constant__ Arguments args) { pooled<true>(args); }
extern "C" __global__ void POOLED_BOUNDS pooled_few_real(const __grid_constant__ Arguments args) { pooled_few<false>(args); }
extern "C" __global__ void POOLED_BOUNDS pooled_few_complex(const __grid_constant__ Arguments args) { pooled_few<true>(args); }
