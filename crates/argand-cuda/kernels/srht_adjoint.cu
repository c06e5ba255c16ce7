// The adjoint of a flat product of SRHTs in one pass: rows and cotangents are read once, and gradients written once.
//
// For each group of rows, a block
// 1. transforms, as `srht.cu` does;
// 2. multiplies the cotangent of each output by the conjugates of all factors but one, and adds the result to that one's sums, which lie where its
//    transformed values do;
// 3. transforms the sums back, one warp for one factor and half a slot, and adds up the factors that read the same row.
//
// Bound: the data pipe of shared memory. Per group of rows and factor, in wavefronts of 128 bytes: N/2 for either transform, m/8 for the
// gathers and 2m/8 for the sums, if none collide.
#include "srht.cuh"

// The most factors of an adjoint; MOST_ADJOINT_FACTORS in srht.rs.
enum { MOST_FACTORS = 8 };

struct AdjointArguments {
    // As for features, but `out` and `out_element` are the cotangent.
    Arguments call;
    // Gradients with respect to each table: as sources, without a constant.
    Source gradients[16];
    // For pooled features: the number of groups, whose starts are in `call`.
    i64 groups;
    int gradient_element;
};

template <bool COMPLEX>
DEVICE float4 times_conjugate(float4 a, float4 b) {
    if (COMPLEX) b = make_float4(b.x, -b.y, b.z, -b.w);
    return times<COMPLEX>(a, b);
}

DEVICE float read_float(const void* data, int element, i64 at) {
    return element == F32 ? __ldg((const float*)data + at) : read<float>(data, element, at);
}

// The cotangent of an output, in the rows of a slot.
template <bool COMPLEX>
DEVICE float4 cotangent(const Arguments& args, const i64* bases, const bool* present, int output) {
    const int re = args.interleaved ? 2 * output : output, im = args.interleaved ? re + 1 : args.outputs + output;
    float part[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int which = COMPLEX ? k / 2 : k;
        const i64 at = bases[which] + (COMPLEX && k % 2 ? im : re);
        part[k] = present[which] ? read_float(args.out, args.out_element, at) * args.scale : 0.0f;
    }
    return make_float4(part[0], part[1], part[2], part[3]);
}

// H of one factor's sums for half a slot, then the conjugate signs: in order, in the half of the factor's sums that the two warps leave to each other.
template <bool COMPLEX>
DEVICE void transform_back(const Arguments& args, float4* sums, int factor, int half, int warp, int lane) {
    float2 a[PER_LANE];
    float2* const own = (float2*)(sums + factor * N);
    float2* const plane = own + half * N;
    each_place(args, factor, lane, [&](int k, u16 place) { a[k] = *(const float2*)((const char*)(own + half) + place); });
    // Places overlap both warps' planes.
    asm volatile("bar.sync %0, 64;" ::"r"(1 + (warp >> 1)) : "memory");
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
        transform_across(a, lane);
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

template <bool COMPLEX>
DEVICE void adjoint(const AdjointArguments& all) {
    extern __shared__ float4 slots[];
    enum { ROWS = COMPLEX ? 2 : 4 };
    const Arguments& args = all.call;
    float4* const sums = slots + args.factors * N;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (i64 row = (i64)blockIdx.x * ROWS; row < args.rows; row += (i64)gridDim.x * ROWS) {
        all_transforms<COMPLEX>(args, slots, row, args.rows, warp, lane);
        i64 bases[ROWS];
        bool present[ROWS];
#pragma unroll
        for (int which = 0; which < ROWS; which++) {
            present[which] = row + which < args.rows;
            const i64 of = all.groups > 0 && present[which] ? group_of(args.starts, all.groups, row + which) : row + which;
            bases[which] = of * args.stride;
        }
        // N neighbouring outputs sample different values of every factor, so that no two threads add to the same sum.
        const bool whole = args.outputs >= N;
        if (!whole) {
            for (int at = threadIdx.x; at < args.factors * N; at += blockDim.x) sums[at] = make_float4(0, 0, 0, 0);
            __syncthreads();
        }
        for (int first = 0; first < args.outputs; first += N) {
            const bool begun = !whole || first > 0;
            for (int output = first + threadIdx.x; output < min(first + N, args.outputs); output += blockDim.x) {
                float4 r = cotangent<COMPLEX>(args, bases, present, output);
                float4 value[MOST_FACTORS], left[MOST_FACTORS];
                u16 at[MOST_FACTORS];
                float4 product = make_float4(1, COMPLEX ? 0 : 1, 1, COMPLEX ? 0 : 1);
#pragma unroll
                for (int factor = 0; factor < MOST_FACTORS; factor++)
                    if (factor < args.factors) {
                        at[factor] = __ldg(args.gathered + (i64)factor * args.outputs_padded + output);
                        value[factor] = slot(slots + factor * N, at[factor]);
                        left[factor] = product;
                        product = factor == 0 ? value[0] : times<COMPLEX>(product, value[factor]);
                    }
#pragma unroll
                for (int factor = MOST_FACTORS - 1; factor >= 0; factor--)
                    if (factor < args.factors) {
                        float4* const sum = (float4*)((char*)(sums + factor * N) + at[factor]);
                        float4 w = factor == 0 ? r : times_conjugate<COMPLEX>(r, left[factor]);
                        if (begun) {
                            const float4 old = *sum;
                            w = make_float4(old.x + w.x, old.y + w.y, old.z + w.z, old.w + w.w);
                        }
                        *sum = w;
                        if (factor > 0) r = times_conjugate<COMPLEX>(r, value[factor]);
                    }
            }
            __syncthreads();
        }
#pragma unroll 1
        for (int task = warp; task < 2 * args.factors; task += blockDim.x / 32) {
            transform_back<COMPLEX>(args, sums, task / 2, task & 1, warp, lane);
        }
        __syncthreads();
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

extern "C" __global__ void POOLED_BOUNDS adjoint_real(const __grid_constant__ AdjointArguments args) { adjoint<false>(args); }
extern "C" __global__ void POOLED_BOUNDS adjoint_complex(const __grid_constant__ AdjointArguments args) { adjoint<true>(args); }
