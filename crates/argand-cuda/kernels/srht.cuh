// A flat product of SRHTs, for `srht.cu` and `srht_adjoint.cu`: what a call is given, and the transforms of rows into slots.
#pragma once
#include "rows.cuh"

// Short factors have a quarter of the numbers of the longest. NOWHERE is the place of a value that is not stored.
enum { N = 1 << LOG, PER_LANE = N / 32, WORDS = (PER_LANE + 31) / 32, SHORT_PER_LANE = PER_LANE / 4, NOWHERE = 0xffff };

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
    // For few pooled features: a bit for each factor that is transformed, and has its places, as one of a quarter of the length.
    u32 short_factors;
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

// The strides 16 ... 1 of numbers that lie in neighbouring lanes.
template <int COUNT>
DEVICE void transform_across(float2* a, int lane) {
#pragma unroll
    for (int stride = 16; stride > 0; stride /= 2)
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            const float2 other = make_float2(__shfl_xor_sync(~0u, a[k].x, stride), __shfl_xor_sync(~0u, a[k].y, stride));
            if (lane & stride) a[k] = make_float2(other.x - a[k].x, other.y - a[k].y);
            else a[k] = make_float2(a[k].x + other.x, a[k].y + other.y);
        }
}

// The places of a lane's transformed values.
template <int COUNT, typename Use>
DEVICE void each_place(const Arguments& args, int factor, int lane, Use use) {
    enum { AT_ONCE = COUNT < 4 ? COUNT : 4 };
    const u16* places = args.places + factor * N + lane * AT_ONCE;
#pragma unroll
    for (int k = 0; k < COUNT; k += AT_ONCE) {
        u16 at[AT_ONCE];
        if (AT_ONCE == 4) *(ushort4*)at = __ldg((const ushort4*)(places + 32 * k));
        else if (AT_ONCE == 2) *(ushort2*)at = __ldg((const ushort2*)(places + 32 * k));
        else at[0] = __ldg(places + 32 * k);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) use(k + j, at[j]);
    }
}

template <bool COMPLEX, int COUNT>
DEVICE void load(const Arguments& args, int factor, int half, i64 row, i64 end, int lane, float2* a) {
    const Source source = args.sources[args.distinct ? factor : 0];
    float x[COMPLEX ? 1 : 2][COUNT];
#pragma unroll
    for (int which = 0; which < (COMPLEX ? 1 : 2); which++) {
        const i64 at_row = COMPLEX ? row + half : row + 2 * half + which;
        const int columns = at_row < end ? source.columns : 0;
        const i64 base = at_row * source.stride + lane;
        if (args.element == F32) {
            const float* from = (const float*)source.x + base;
            if (columns == 32 * COUNT) {
#pragma unroll
                for (int k = 0; k < COUNT; k++) x[which][k] = __ldg(from + 32 * k);
            } else {
#pragma unroll
                for (int k = 0; k < COUNT; k++) x[which][k] = 32 * k + lane < columns ? __ldg(from + 32 * k) : 0.0f;
            }
        } else {
            const u16* from = (const u16*)source.x + base;
            const bool half_precision = args.element == F16;
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                const u16 bits = 32 * k + lane < columns ? __ldg(from + 32 * k) : (u16)0;
                x[which][k] = half_precision ? half_to_float(bits) : bfloat_to_float(bits);
            }
        }
        if (args.root_gamma != 1.0f) {
#pragma unroll
            for (int k = 0; k < COUNT; k++) x[which][k] *= args.root_gamma;
        }
        if (columns < 32 * COUNT) {
#pragma unroll
            for (int k = 0; k < COUNT; k++)
                if (32 * k + lane == columns) x[which][k] = source.root_coef0;
        }
    }
#pragma unroll
    for (int word = 0; word < (COUNT + 31) / 32; word++) {
        const u32* turns = args.turns + (factor * WORDS + word) * 64 + lane;
        const u32 imaginary = __ldg(turns), negative = __ldg(turns + 32);
#pragma unroll
        for (int k = 32 * word; k < 32 * word + 32 && k < COUNT; k++) {
            const u32 sign = negative << (31 - k % 32) & 0x80000000u;
            const float u = __uint_as_float(__float_as_uint(x[0][k]) ^ sign);
            if (COMPLEX) a[k] = (imaginary >> (k % 32)) & 1 ? make_float2(0.0f, u) : make_float2(u, 0.0f);
            else a[k] = make_float2(u, __uint_as_float(__float_as_uint(x[COMPLEX ? 0 : 1][k]) ^ sign));
        }
    }
}

// Shares two tasks for each factor among the warps. If a task WAITS once for the whole block, because the halves of a factor overlap, warps
// without a task in the last round wait, too.
template <bool WAITS, typename Task>
DEVICE void each_task(int factors, int warp, Task task) {
    const int warps = blockDim.x / 32;
    int now = warp;
#pragma unroll 1
    for (; now < 2 * factors; now += warps) task(now / 2, now & 1);
    if (WAITS && now - warp < 2 * factors) __syncthreads();
    __syncthreads();
}

// H D x of one factor and half a slot, into its places. FEW: some values have none.
template <bool COMPLEX, int COUNT, bool FEW>
DEVICE void transform(const Arguments& args, float4* slots, int factor, int half, i64 row, i64 end, int lane) {
    float2 a[COUNT];
    load<COMPLEX, COUNT>(args, factor, half, row, end, lane, a);
    transform_own<COUNT>(a);
    float2* const own = (float2*)(slots + factor * N);
    if (COUNT >= 32) {
        // Number 32 k + lane becomes lane (32 k + lane) / PER_LANE's; the exclusive or spreads columns over the banks.
        enum { SHIFT = COUNT >= 64 ? 1 : 0 };
        float2* plane = own + half * N;
#pragma unroll
        for (int k = 0; k < COUNT; k++) plane[32 * k + (lane ^ ((k >> SHIFT) & 15))] = a[k];
        __syncwarp();
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            const int line = COUNT / 32 * lane + k / 32;
            a[k] = plane[32 * line + ((k % 32) ^ ((line >> SHIFT) & 15))];
        }
#pragma unroll
        for (int part = 0; part < COUNT / 32; part++) transform_own<32>(a + 32 * part);
    } else {
        transform_across<COUNT>(a, lane);
    }
    // Places overlap both halves' planes. All warps wait as often as those of the longest factor.
    if (PER_LANE >= 32) __syncthreads();
    each_place<COUNT>(args, factor, lane, [&](int k, u16 place) {
        if (!FEW || place != NOWHERE) *(float2*)((char*)(own + half) + place) = a[k];
    });
}

// The product of one slot, for two complex rows or four real ones.
template <bool COMPLEX>
DEVICE float4 times(float4 a, float4 b) {
    if (!COMPLEX) return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
    return make_float4(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x, a.z * b.z - a.w * b.w, a.z * b.w + a.w * b.z);
}

DEVICE float4 slot(const float4* slots, u16 at) { return *(const float4*)((const char*)slots + at); }

// FEW: of few outputs, with short factors and values that none of them samples.
template <bool COMPLEX, bool FEW>
DEVICE void all_transforms(const Arguments& args, float4* slots, i64 row, i64 end, int warp, int lane) {
    each_task<(PER_LANE >= 32)>(args.factors, warp, [&](int factor, int half) {
        if constexpr (FEW && SHORT_PER_LANE > 0) {
            if (args.short_factors >> factor & 1) {
                transform<COMPLEX, SHORT_PER_LANE, FEW>(args, slots, factor, half, row, end, lane);
                return;
            }
        }
        transform<COMPLEX, PER_LANE, FEW>(args, slots, factor, half, row, end, lane);
    });
}
