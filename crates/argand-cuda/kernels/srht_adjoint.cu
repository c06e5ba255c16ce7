// The adjoint of a flat product of SRHTs in one pass: rows and cotangents are read once, and gradients written once.
//
// For each group of rows, a block
// 1. transforms, as `srht.cu` does;
// 2. multiplies the cotangent of each output by the conjugates of all factors but one, and adds the result to that one's sums, which lie where its
//    transformed values do: in rounds of outputs that share no value (`Rounds` in srht.rs);
// 3. transforms the sums back, one warp for one factor and half a slot, and adds up the factors that read the same row.
//
// Bound: the data pipe of shared memory. Per group of rows and factor, in wavefronts of 128 bytes: N/2 for either transform, m/8 for the
// gathers and 2m/8 for the sums, if none collide.
#include "srht.cuh"

struct AdjointArguments {
    // As for features, but `out` and `out_element` are the cotangent.
    Arguments call;
    // Gradients with respect to each table: as sources, without a constant.
    Source gradients[16];
    // For pooled features: the number of groups, whose starts are in `call`.
    i64 groups;
    // Outputs in the order in which they are added, a round of one for each thread after the other, or -1. Those of a round sample different
    // values of every factor, so that no two threads add to the same sum; `call.gathered` is in this order, too.
    const int* order;
    int rounds;
    int gradient_element;
};

template <bool COMPLEX>
DEVICE float4 times_conjugate(float4 a, float4 b) {
    if (COMPLEX) b = make_float4(b.x, -b.y, b.z, -b.w);
    return times<COMPLEX>(a, b);
}

// H of one factor's sums for half a slot, then the conjugate signs: in order, in the half of the factor's sums that the two warps leave to
// each other.
template <bool COMPLEX>
DEVICE void transform_back(const Arguments& args, float4* sums, int factor, int half, int lane) {
    float2 a[PER_LANE];
    float2* const own = (float2*)(sums + factor * N);
    float2* const plane = own + half * N;
    each_place<PER_LANE>(args, factor, lane, [&](int k, u16 place) { a[k] = *(const float2*)((const char*)(own + half) + place); });
    // Places overlap both halves' planes.
    __syncthreads();
    if (PER_LANE >= 32) {
        enum { SHIFT = PER_LANE >= 64 ? 1 : 0 };
#pragma unroll
        for (int part = 0; part < PER_LANE / 32; part++) transform_own<32>(a + 32 * part);
#pragma unroll
        for (int k = 0; k < PER_LANE; k++) {
            const int line = PER_LANE / 32 * lane + k / 32;
            plane[32 * line + ((k % 32) ^ ((line >> SHIFT) & 15))] = a[k];
        }
        __syncwarp();
#pragma unroll
        for (int k = 0; k < PER_LANE; k++) a[k] = plane[32 * k + (lane ^ ((k >> SHIFT) & 15))];
        __syncwarp();
    } else {
        transform_across<PER_LANE>(a, lane);
    }
    transform_own<PER_LANE>(a);
#pragma unroll
    for (int word = 0; word < WORDS; word++) {
        const u32* turns = args.turns + (factor * WORDS + word) * 64 + lane;
        const u32 imaginary = __ldg(turns), negative = __ldg(turns + 32);
#pragma unroll
        for (int k = 32 * word; k < 32 * word + 32 && k < PER_LANE; k++) {
            const u32 sign = negative << (31 - k % 32) & 0x80000000u;
            if (COMPLEX) {
                const float part = (imaginary >> (k % 32)) & 1 ? a[k].y : a[k].x;
                ((float*)plane)[32 * k + lane] = __uint_as_float(__float_as_uint(part) ^ sign);
            } else {
                plane[32 * k + lane] = make_float2(__uint_as_float(__float_as_uint(a[k].x) ^ sign),
                                                   __uint_as_float(__float_as_uint(a[k].y) ^ sign));
            }
        }
    }
}

// A number of one row that was transformed back.
template <bool COMPLEX>
DEVICE float transformed_back(const float4* sums, int factor, int which, int column) {
    const float* own = (const float*)(sums + factor * N);
    return COMPLEX ? own[which * 2 * N + column] : own[which / 2 * 2 * N + 2 * column + which % 2];
}

// Asked for in each phase, so that addresses of one phase do not take registers from the next.
DEVICE int lane_id() {
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// One output of one thread: its cotangent, and where its values lie. There are FACTORS factors, or any number up to eight if it is eight.
template <bool COMPLEX, int FACTORS>
struct Step {
    int output;
    // The cotangent's bits in the rows of a slot, not looked at before they are needed: they are still on their way.
    u32 cotangent[4];
    u32 at[FACTORS];

    static DEVICE bool has(const Arguments& args, int factor) { return FACTORS < 8 || factor < args.factors; }

    DEVICE void begin(const AdjointArguments& all, const i64* bases, const bool* present, int which, int place) {
        const Arguments& args = all.call;
        output = which;
        if (output < 0) return;
        const int re = args.interleaved ? 2 * output : output, im = args.interleaved ? re + 1 : args.outputs + output;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int row = COMPLEX ? k / 2 : k;
            const i64 from = bases[row] + (COMPLEX && k % 2 ? im : re);
            cotangent[k] = 0;
            if (present[row]) cotangent[k] = args.out_element == F32 ? __ldg((const u32*)args.out + from) : __ldg((const u16*)args.out + from);
        }
#pragma unroll
        for (int factor = 0; factor < FACTORS; factor++)
            if (has(args, factor)) at[factor] = __ldg(args.gathered + (i64)factor * args.outputs_padded + place);
    }

    DEVICE float part(const Arguments& args, int k) const {
        const u32 bits = cotangent[k];
        const float value = args.out_element == F32   ? __uint_as_float(bits)
                            : args.out_element == F16 ? half_to_float((u16)bits)
                                                      : bfloat_to_float((u16)bits);
        return value * args.scale;
    }

    DEVICE void add(const Arguments& args, const float4* slots, float4* sums) const {
        if (output < 0) return;
        const float4 first = make_float4(part(args, 0), part(args, 1), part(args, 2), part(args, 3));
        float4 value[FACTORS], left[FACTORS];
#pragma unroll
        for (int factor = 0; factor < FACTORS; factor++)
            if (has(args, factor)) {
                value[factor] = slot(slots + factor * N, at[factor]);
                left[factor] = factor == 0 ? first : times_conjugate<COMPLEX>(left[factor - 1], value[factor - 1]);
            }
        float4 right;
        bool last = true;
#pragma unroll
        for (int factor = FACTORS - 1; factor >= 0; factor--)
            if (has(args, factor)) {
                float4* const sum = (float4*)((char*)(sums + factor * N) + at[factor]);
                const float4 now = *sum, w = last ? left[factor] : times_conjugate<COMPLEX>(left[factor], right);
                *sum = make_float4(now.x + w.x, now.y + w.y, now.z + w.z, now.w + w.w);
                right = last ? value[factor] : times<COMPLEX>(value[factor], right);
                last = false;
            }
    }
};

template <bool COMPLEX, int FACTORS>
DEVICE void adjoint(const AdjointArguments& all) {
    extern __shared__ float4 slots[];
    enum { ROWS = COMPLEX ? 2 : 4 };
    const Arguments& args = all.call;
    float4* const sums = slots + args.factors * N;
    const int warp = threadIdx.x / 32;
    for (i64 row = (i64)blockIdx.x * ROWS; row < args.rows; row += (i64)gridDim.x * ROWS) {
        all_transforms<COMPLEX, false>(args, slots, row, args.rows, warp, lane_id());
        prefetch<ROWS>(args, row + (i64)gridDim.x * ROWS, threadIdx.x, blockDim.x);
        i64 bases[ROWS];
        bool present[ROWS];
#pragma unroll
        for (int which = 0; which < ROWS; which++) {
            present[which] = row + which < args.rows;
            const i64 of = all.groups > 0 && present[which] ? group_of(args.starts, all.groups, row + which) : row + which;
            bases[which] = of * args.stride;
        }
        for (int at = threadIdx.x; at < args.factors * N; at += blockDim.x) sums[at] = make_float4(0, 0, 0, 0);
        Step<COMPLEX, FACTORS> even, odd;
        even.begin(all, bases, present, __ldg(all.order + threadIdx.x), threadIdx.x);
        int later = all.rounds > 1 ? __ldg(all.order + blockDim.x + threadIdx.x) : -1;
        __syncthreads();
        // What the next round needs is asked for before this one begins.
        auto add = [&](int round, Step<COMPLEX, FACTORS>& now, Step<COMPLEX, FACTORS>& next) {
            const int at = (round + 1) * blockDim.x + threadIdx.x;
            next.begin(all, bases, present, later, at);
            later = round + 2 < all.rounds ? __ldg(all.order + blockDim.x + at) : -1;
            now.add(args, slots, sums);
            __syncthreads();
        };
#pragma unroll 1
        for (int round = 0; round < all.rounds; round += 2) {
            add(round, even, odd);
            if (round + 1 < all.rounds) add(round + 1, odd, even);
        }
        each_task<true>(
            args.factors, warp, [&](int factor, int half) { transform_back<COMPLEX>(args, sums, factor, half, lane_id()); });
        const int tables = args.distinct ? args.factors : 1;
        for (int table = 0; table < tables; table++) {
            const Source target = all.gradients[table];
#pragma unroll
            for (int which = 0; which < ROWS; which++) {
                if (!present[which]) break;
                float bad = 0;
                for (int column = threadIdx.x; column < target.columns; column += blockDim.x) {
                    float sum = transformed_back<COMPLEX>(sums, table, which, column);
                    if (!args.distinct) {
                        for (int factor = 1; factor < args.factors; factor++) {
                            sum += transformed_back<COMPLEX>(sums, factor, which, column);
                        }
                    }
                    sum *= args.root_gamma;
                    write<float>((void*)target.x, all.gradient_element, (row + which) * target.stride + column, sum);
                    if (!fits<float>(all.gradient_element, sum)) bad = 1;
                }
                if (bad != 0) atomicMin(args.bad_row, (u64)(args.first_row + row + which));
            }
        }
        __syncthreads();
    }
}

// Where shared memory has room for one block alone, it may have all registers: for four factors and more, and for the longest rows.
#define FEW __launch_bounds__(LOG == 11 ? 192 : 256, LOG == 11 ? 1 : 2)
#define MANY __launch_bounds__(LOG == 11 ? 192 : 256, 1)

extern "C" __global__ void FEW adjoint_real_2(const __grid_constant__ AdjointArguments args) { adjoint<false, 2>(args); }
extern "C" __global__ void FEW adjoint_real_3(const __grid_constant__ AdjointArguments args) { adjoint<false, 3>(args); }
extern "C" __global__ void MANY adjoint_real(const __grid_constant__ AdjointArguments args) { adjoint<false, 8>(args); }
extern "C" __global__ void FEW adjoint_complex_2(const __grid_constant__ AdjointArguments args) { adjoint<true, 2>(args); }
extern "C" __global__ void FEW adjoint_complex_3(const __grid_constant__ AdjointArguments args) { adjoint<true, 3>(args); }
extern "C" __global__ void MANY adjoint_complex(const __grid_constant__ AdjointArguments args) { adjoint<true, 8>(args); }
