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
// Bound: the data pipe of shared memory. Per group of rows and factor, in wavefronts of 128 bytes: N/8 for each of exchange out
// and in, N/4 for the places (half a slot at a time), m/8 for the gathers if none collide; and the features, m/16 in all. Device memory reads N and
// writes D numbers per row.
#include "rows.cuh"

enum { N = 1 << LOG, PER_LANE = N / 32, WORDS = (PER_LANE + 31) / 32 };

// The most threads of a block, and blocks that shall fit at once: 80 registers for a thread, and 170 for the longest rows. Sums of
// pooled features take more.
#define BOUNDS __launch_bounds__(LOG == 11 ? 192 : 256, LOG == 11 ? 2 : 3)
#define POOLED_BOUNDS __launch_bounds__(LOG == 11 ? 192 : 256, 2)

struct Arguments {
    // One for each factor, or a single one.
    Source sources[16];
    // Quarter turns of D: [factor][word][imaginary, negative][lane], a bit for each of the numbers 32 (32 word + k) + lane.
    const u32* turns;
    // Where each transformed value lies among its factor's slots, in bytes, in the order in which lanes hold them:
    // [factor][number / 4][lane][number % 4].
    const u16* places;
    // Where each output lies: [factor][output].
    const u16* gathered;
    void* out;
    u64* bad_row;
    // For pooled features: the first row of each group.
    const i64* starts;
    i64 rows;
    i64 stride;
    i64 first_row;
    float root_gamma;
    float scale;
    int factors;
    int outputs;
    int element;
    // Whether real and imaginary parts alternate.
    int interleaved;
    // Whether four neighbouring numbers of a row can be written at once.
    int aligned;
    // Outputs, rounded up to groups of four.
    int outputs_padded;
    // Groups of four outputs after which the first factor's slots repeat, or all groups.
    int period;
    // Whether every factor reads a table of its own.
    int distinct;
    int out_element;
};

// All strides of a lane's own numbers, from the largest to the smallest.
template <int COUNT>
DEVICE void transform_own(float2* a) {
#pragma unroll
    for (int stride = COUNT / 2; stride > 0; stride /= 2)
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            if (!(k & stride)) {
                const float2 p = a[k], q = a[k | stride];
                a[k] = make_float2(p.x + q.x, p.y + q.y);
                a[k | stride] = make_float2(p.x - q.x, p.y - q.y);
            }
}

template <bool COMPLEX>
DEVICE void load(const Arguments& args, int factor, int half, i64 row, i64 end, int lane, float2* a) {
    const Source source = args.sources[args.distinct ? factor : 0];
    float x[COMPLEX ? 1 : 2][PER_LANE];
#pragma unroll
    for (int which = 0; which < (COMPLEX ? 1 : 2); which++) {
        const i64 at_row = COMPLEX ? row + half : row + 2 * half + which;
        const int columns = at_row < end ? source.columns : 0;
        const i64 base = at_row * source.stride + lane;
        if (args.element == F32) {
            const float* from = (const float*)source.x + base;
            if (columns == N) {
#pragma unroll
                for (int k = 0; k < PER_LANE; k++) x[which][k] = __ldg(from + 32 * k);
            } else {
#pragma unroll
                for (int k = 0; k < PER_LANE; k++) x[which][k] = 32 * k + lane < columns ? __ldg(from + 32 * k) : 0.0f;
            }
        } else {
            const u16* from = (const u16*)source.x + base;
            const bool half_precision = args.element == F16;
#pragma unroll
            for (int k = 0; k < PER_LANE; k++) {
                const u16 bits = 32 * k + lane < columns ? __ldg(from + 32 * k) : (u16)0;
                x[which][k] = half_precision ? half_to_float(bits) : bfloat_to_float(bits);
            }
        }
        if (args.root_gamma != 1.0f) {
#pragma unroll
            for (int k = 0; k < PER_LANE; k++) x[which][k] *= args.root_gamma;
        }
        if (columns < N) {
#pragma unroll
            for (int k = 0; k < PER_LANE; k++)
                if (32 * k + lane == columns) x[which][k] = source.root_coef0;
        }
    }
#pragma unroll
    for (int word = 0; word < WORDS; word++) {
        const u32* turns = args.turns + (factor * WORDS + word) * 64 + lane;
        const u32 imaginary = __ldg(turns), negative = __ldg(turns + 32);
#pragma unroll
        for (int k = 32 * word; k < 32 * word + 32 && k < PER_LANE; k++) {
            const u32 sign = negative << (31 - k % 32) & 0x80000000u;
            const float u = __uint_as_float(__float_as_uint(x[0][k]) ^ sign);
            if (COMPLEX) a[k] = (imaginary >> (k % 32)) & 1 ? make_float2(0.0f, u) : make_float2(u, 0.0f);
            else a[k] = make_float2(u, __uint_as_float(__float_as_uint(x[COMPLEX ? 0 : 1][k]) ^ sign));
        }
    }
}

// H D x of one factor and half a slot, into its places. The two warps of a factor come here together.
template <bool COMPLEX>
DEVICE void transform(const Arguments& args, float4* slots, int factor, int half, i64 row, i64 end, int warp, int lane) {
    float2 a[PER_LANE];
    load<COMPLEX>(args, factor, half, row, end, lane, a);
    transform_own<PER_LANE>(a);
    float2* const own = (float2*)(slots + factor * N);
    if (PER_LANE >= 32) {
        // Number 32 k + lane becomes lane (32 k + lane) / PER_LANE's; the exclusive or spreads columns over the banks.
        enum { SHIFT = PER_LANE >= 64 ? 1 : 0 };
        float2* plane = own + half * N;
#pragma unroll
        for (int k = 0; k < PER_LANE; k++) plane[32 * k + (lane ^ ((k >> SHIFT) & 15))] = a[k];
        __syncwarp();
#pragma unroll
        for (int k = 0; k < PER_LANE; k++) {
            const int line = PER_LANE / 32 * lane + k / 32;
            a[k] = plane[32 * line + ((k % 32) ^ ((line >> SHIFT) & 15))];
        }
#pragma unroll
        for (int part = 0; part < PER_LANE / 32; part++) transform_own<32>(a + 32 * part);
        // Places overlap both warps' planes.
        asm volatile("bar.sync %0, 64;" ::"r"(1 + (warp >> 1)) : "memory");
    } else {
#pragma unroll
        for (int stride = 16; stride > 0; stride /= 2)
#pragma unroll
            for (int k = 0; k < PER_LANE; k++) {
                const float2 other = make_float2(__shfl_xor_sync(~0u, a[k].x, stride), __shfl_xor_sync(~0u, a[k].y, stride));
                if (lane & stride) a[k] = make_float2(other.x - a[k].x, other.y - a[k].y);
                else a[k] = make_float2(a[k].x + other.x, a[k].y + other.y);
            }
    }
    enum { AT_ONCE = PER_LANE < 4 ? PER_LANE : 4 };
    const u16* places = args.places + factor * N + lane * AT_ONCE;
#pragma unroll
    for (int k = 0; k < PER_LANE; k += AT_ONCE) {
        u16 to[AT_ONCE];
        if (AT_ONCE == 4) *(ushort4*)to = __ldg((const ushort4*)(places + 32 * k));
        else if (AT_ONCE == 2) *(ushort2*)to = __ldg((const ushort2*)(places + 32 * k));
        else to[0] = __ldg(places + 32 * k);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) *(float2*)((char*)(own + half) + to[j]) = a[k + j];
    }
}

// The product of one slot, for two complex rows or four real ones.
template <bool COMPLEX>
DEVICE float4 times(float4 a, float4 b) {
    if (!COMPLEX) return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
    return make_float4(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x, a.z * b.z - a.w * b.w, a.z * b.w + a.w * b.z);
}

DEVICE float4 slot(const float4* slots, u16 at) { return *(const float4*)((const char*)slots + at); }

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

template <bool COMPLEX>
DEVICE void all_transforms(const Arguments& args, float4* slots, i64 row, i64 end, int warp, int lane) {
#pragma unroll 1
    for (int task = warp; task < 2 * args.factors; task += blockDim.x / 32) {
        transform<COMPLEX>(args, slots, task / 2, task & 1, row, end, warp, lane);
    }
    __syncthreads();
}

template <bool COMPLEX, bool PLAIN>
DEVICE void features(const Arguments& args) {
    extern __shared__ float4 slots[];
    enum { ROWS = COMPLEX ? 2 : 4 };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int groups = args.outputs_padded / 4;
    const ushort4* gathered = (const ushort4*)args.gathered;
    for (i64 row = (i64)blockIdx.x * ROWS; row < args.rows; row += (i64)gridDim.x * ROWS) {
        all_transforms<COMPLEX>(args, slots, row, args.rows, warp, lane);
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
        all_transforms<COMPLEX>(args, slots, row, end, warp, lane);
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

extern "C" __global__ void BOUNDS features_real(const __grid_constant__ Arguments args) { features<false, false>(args); }
extern "C" __global__ void BOUNDS features_real_plain(const __grid_constant__ Arguments args) { features<false, true>(args); }
extern "C" __global__ void BOUNDS features_complex(const __grid_constant__ Arguments args) { features<true, false>(args); }
extern "C" __global__ void BOUNDS features_complex_plain(const __grid_constant__ Arguments args) { features<true, true>(args); }
extern "C" __global__ void POOLED_BOUNDS pooled_real(const __grid_constant__ Arguments args) { pooled<false>(args); }
extern "C" __global__ void POOLED_BOUNDS pooled_complex(const __grid_constant__ Arguments args) { pooled<true>(args); }
