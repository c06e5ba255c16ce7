// The features of a flat TensorSketch in one pass: rows are read once and features are written once.
//
// Compiled for every LOG = log2 of m, the length of the transforms. A team of threads takes two rows a and b of a real sketch,
// as real and imaginary parts of z, or one row of a complex sketch. For each factor, it
// 1. gathers the count sketch: every bucket takes one slot of x~ with a sign. Slots hold the coordinates of x~, a zero for empty
//    buckets, and the sums of buckets with several coordinates, added in ascending order when the row is loaded;
// 2. transforms: passes of 16 numbers per lane in registers, from natural to bit-reversed order;
// 3. multiplies its products, in registers, by what the last pass leaves there. Of two rows, the transforms are
//    A(k) = (Z(k) + conj Z(-k))/2 and B(k) = (Z(k) - conj Z(-k))/2i: a lane's two blocks of eight have frequencies k and -k.
// Then the products are transformed back, from bit-reversed to natural order, with real and imaginary parts exchanged: this makes a
// transform an inverse one. The last pass writes the features.
//
// Rows that share a transform are divided by powers of two to similar norms, since each is rounded as the larger one.
//
// All passes compute sums of x_t u^t w^(qt): decimation in time whose twiddles u are the same for all of a block, if the input is
// in natural order, or depend on the place in the block, if it is in bit-reversed order. Each butterfly is six multiply-adds.
//
// Bound: shared memory and the issue of instructions alike. Per two real rows or one complex one, in wavefronts of 128 bytes: each
// pass reads and writes m/16 each, without collisions, but the first and last ones only one of them: for each factor and for the
// inverse, m/8 for every pass but one; and for each factor, about m/13 for the gathers and m/64 for their codes from the cache. About
// 1050 instructions for 16 numbers and a factor at m = 8192. Device memory reads d and writes D numbers per row.
#include "rows.cuh"

enum {
    M = 1 << LOG,
    PER_LANE = 16,
    LANES = M / PER_LANE,
    // Numbers are apart so that the strides of no pass collide in a bank.
    PADDED = M + M / 16,
    // Levels of the passes before the last one, which has three: at most four each, the larger ones first.
    PASSES = (LOG - 3 + 3) / 4,
    // Lanes that one thread plays in turn: two blocks of half as many threads wait less than one. Loops over them are unrolled only
    // where registers demand it, for the sake of the instructions' cache.
    CHUNKS = LOG >= 13 ? 2 : 1,
    THREADS = LANES / CHUNKS < 32 ? 32 : LANES / CHUNKS,
    POOLED_THREADS = LANES < 32 ? 32 : LANES,
};

// At most 128 registers for a thread.
#define BOUNDS __launch_bounds__(THREADS, 512 / THREADS)
#define POOLED_BOUNDS __launch_bounds__(POOLED_THREADS, 512 / POOLED_THREADS)

struct Arguments {
    // One for each factor, or a single one.
    Source sources[16];
    // Slot and quarter turns of each bucket, 4 slot + turns, in the order of the first pass: [factor][number / 8][lane][number % 8].
    const u16* codes;
    // Buckets with several coordinates: where the codes of their coordinates start in `members`, for all factors.
    const u32* list_starts;
    const u16* members;
    // exp(-2 pi i ...), in the order of the passes, forward and then inverse: `Tables` in the host's code.
    const float2* twiddles;
    void* out;
    u64* bad_row;
    // For pooled features: the first row of each group.
    const i64* starts;
    i64 rows;
    i64 groups;
    i64 stride;
    i64 first_row;
    float root_gamma;
    float scale;
    int factors;
    int element;
    int out_element;
    // Whether real and imaginary parts alternate.
    int interleaved;
    // Whether every factor reads a table of its own.
    int distinct;
    // Slots of a team.
    int slots;
    // The first list of each factor; the last entry ends the list.
    int lists[33];
};

// One thread's part of a team.
template <int OF_CHUNKS>
struct Team {
    enum { SIZE = LANES / OF_CHUNKS };
    int number, thread;
    float2* work;
    float2* slots;

    DEVICE Team(const Arguments& args, float2* shared) {
        const int teams = blockDim.x / SIZE;
        number = threadIdx.x / SIZE;
        thread = threadIdx.x % SIZE;
        work = shared + number * PADDED;
        slots = shared + teams * PADDED + number * args.slots;
    }
};

#include "passes.cuh"

// A code's slot, turned.
template <bool COMPLEX>
DEVICE float2 look_up(const float2* slots, u32 code) {
    const float2 x = *(const float2*)((const char*)slots + ((code << 1) & 0x1fff8u));
    const bool swap = COMPLEX && (code & 1);
    const u32 sign = code << 30 & 0x80000000u;
    const u32 re = __float_as_uint(swap ? -x.y : x.x), im = __float_as_uint(swap ? x.x : x.y);
    return make_float2(__uint_as_float(re ^ sign), __uint_as_float(im ^ sign));
}

// The sum of squares of two rows over a team, in an order that never changes; whole blocks come here together.
template <int SIZE>
DEVICE double2 add_up(double2 own, int team) {
    enum { WIDTH = SIZE < 32 ? SIZE : 32 };
    __shared__ double2 partial[32];
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step /= 2) {
        own.x += __shfl_xor_sync(~0u, own.x, step);
        own.y += __shfl_xor_sync(~0u, own.y, step);
    }
    if (threadIdx.x % WIDTH == 0) partial[threadIdx.x / WIDTH] = own;
    __syncthreads();
    double2 sum = make_double2(0.0, 0.0);
    for (int part = 0; part < SIZE / WIDTH; part++) {
        const double2 other = partial[team * (SIZE / WIDTH) + part];
        sum.x += other.x;
        sum.y += other.y;
    }
    return sum;
}

// Half the exponent of a squared norm: the power of two to divide a row by.
DEVICE int half_exponent(double squared) {
    const int exponent = (int)(__double_as_longlong(squared) >> 52 & 0x7ff);
    const int half = (exponent - 1023) >> 1;
    return exponent == 0 ? 0 : half < -120 ? -120 : half > 120 ? 120 : half;
}

// 2^exponent, for exponents of normal numbers.
DEVICE float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

// Added to the exponent of a row of zeros: nothing is left of its neighbour's rounding.
enum { VANISHED = -(1 << 20) };

// The rows of a team, as divided by powers of two.
struct Rows {
    // The exponents' sums over all factors.
    int exponents[2];
    // Whether rows hold only finite numbers.
    bool finite[2];
};

// x~ of one row, or of two as real and imaginary parts, into the team's slots; then the sums of factors' lists. The division by two
// in A and B is done here.
template <bool COMPLEX, int OF_CHUNKS>
DEVICE void load(const Arguments& args, const Team<OF_CHUNKS>& team, const Source& source, i64 row, i64 end, int first_list,
                 int last_list, Rows& rows) {
    enum { SIZE = Team<OF_CHUNKS>::SIZE };
    const int columns = source.columns;
    const bool with_a = row < end, with_b = !COMPLEX && row + 1 < end;
    double2 squares = make_double2(0.0, 0.0);
    for (int at = team.thread; at < columns + 2; at += SIZE) {
        float2 x = make_float2(0.0f, 0.0f);
        if (at < columns) {
            if (with_a) x.x = read<float>(source.x, args.element, row * source.stride + at) * args.root_gamma;
            if (with_b) x.y = read<float>(source.x, args.element, (row + 1) * source.stride + at) * args.root_gamma;
        } else if (at == columns) {
            x = make_float2(source.root_coef0, COMPLEX ? 0.0f : source.root_coef0);
        }
        team.slots[at] = x;
        squares.x += (double)x.x * (double)x.x;
        squares.y += (double)x.y * (double)x.y;
    }
    if (!COMPLEX) {
        squares = add_up<SIZE>(squares, team.number);
        const int exponents[2] = {half_exponent(squares.x), half_exponent(squares.y)};
        const bool good[2] = {finite(squares.x), finite(squares.y)};
        const bool zero[2] = {squares.x == 0.0, squares.y == 0.0};
        const float by[2] = {power_of_two(-1 - exponents[0]), power_of_two(-1 - exponents[1])};
#pragma unroll
        for (int which = 0; which < 2; which++) {
            rows.exponents[which] += zero[which] ? VANISHED : exponents[which];
            rows.finite[which] = rows.finite[which] && good[which];
        }
        // Each thread's own.
        for (int at = team.thread; at < columns + 2; at += SIZE) {
            const float2 x = team.slots[at];
            team.slots[at] = make_float2(good[0] ? x.x * by[0] : 0.0f, good[1] ? x.y * by[1] : 0.0f);
        }
    }
    __syncthreads();
    for (int list = first_list + team.thread; list < last_list; list += SIZE) {
        float2 sum = make_float2(0.0f, 0.0f);
        for (u32 at = __ldg(args.list_starts + list), last = __ldg(args.list_starts + list + 1); at < last; at++) {
            const float2 x = look_up<COMPLEX>(team.slots, __ldg(args.members + at));
            sum = make_float2(sum.x + x.x, sum.y + x.y);
        }
        team.slots[columns + 2 + list - first_list] = sum;
    }
    __syncthreads();
}

// The first pass of a factor, from the slots.
template <bool COMPLEX>
DEVICE void gather(const Arguments& args, int factor, const float2* slots, float2* work, int lane) {
    typedef Pass<0> P;
    float2 a[PER_LANE];
    const uint4* codes = (const uint4*)args.codes + 2 * LANES * factor + lane;
#pragma unroll
    for (int part = 0; part < 2; part++) {
        const uint4 eight = __ldg(codes + LANES * part);
        const u32 pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int k = 0; k < 8; k++) a[8 * part + k] = look_up<COMPLEX>(slots, pairs[k / 2] >> (16 * (k % 2)));
    }
    float2* own = work + padded(P::first(lane));
#pragma unroll
    for (int n = 0; n < P::COUNT; n++) {
        transform<P::LOG_R, true>(a + n * P::R, make_float2(1.0f, 0.0f));
#pragma unroll
        for (int i = 0; i < P::R; i++) own[padded(P::offset(n, i))] = a[n * P::R + i];
    }
}

template <int PASS>
DEVICE void forward(const Arguments& args, float2* work, int lane) {
    typedef Pass<PASS> P;
    float2 a[PER_LANE];
    float2* own = work + padded(P::first(lane));
    const float2 u = __ldg(args.twiddles + P::FORWARD + P::block(lane));
#pragma unroll
    for (int n = 0; n < P::COUNT; n++)
#pragma unroll
        for (int i = 0; i < P::R; i++) a[n * P::R + i] = own[padded(P::offset(n, i))];
#pragma unroll
    for (int n = 0; n < P::COUNT; n++) {
        transform<P::LOG_R, false>(a + n * P::R, u);
#pragma unroll
        for (int i = 0; i < P::R; i++) own[padded(P::offset(n, i))] = a[n * P::R + i];
    }
}

// All passes between the first and the last.
template <int PASS, int OF_CHUNKS>
DEVICE void forward_from(const Arguments& args, const Team<OF_CHUNKS>& team) {
    if constexpr (PASS < PASSES) {
#pragma unroll 1
        for (int chunk = 0; chunk < OF_CHUNKS; chunk++) {
            forward<PASS>(args, team.work, team.thread + chunk * Team<OF_CHUNKS>::SIZE);
        }
        __syncthreads();
        forward_from<PASS + 1>(args, team);
    }
}

// The inverse of a pass: numbers in bit-reversed order become numbers in natural order. They stay in registers, in bit-reversed order.
template <int PASS>
DEVICE void inverse(const Arguments& args, const float2* work, int lane, float2* a) {
    typedef Pass<PASS> P;
    const float2* own = work + padded(P::first(lane));
    const float2* twiddles = args.twiddles + P::INVERSE + P::within(lane);
#pragma unroll
    for (int n = 0; n < P::COUNT; n++)
#pragma unroll
        for (int i = 0; i < P::R; i++) a[n * P::R + reversed(i, P::LOG_R)] = own[padded(P::offset(n, i))];
#pragma unroll
    for (int n = 0; n < P::COUNT; n++) transform<P::LOG_R, false>(a + n * P::R, __ldg(twiddles + n * P::STEP));
}

// All inverse passes between the first and the last.
template <int PASS, int OF_CHUNKS>
DEVICE void inverse_from(const Arguments& args, const Team<OF_CHUNKS>& team) {
    if constexpr (PASS > 0) {
        typedef Pass<PASS> P;
#pragma unroll 1
        for (int chunk = 0; chunk < OF_CHUNKS; chunk++) {
            const int lane = team.thread + chunk * Team<OF_CHUNKS>::SIZE;
            float2 a[PER_LANE];
            inverse<PASS>(args, team.work, lane, a);
            float2* own = team.work + padded(P::first(lane));
#pragma unroll
            for (int n = 0; n < P::COUNT; n++)
#pragma unroll
                for (int i = 0; i < P::R; i++) own[padded(P::offset(n, reversed(i, P::LOG_R)))] = a[n * P::R + i];
        }
        __syncthreads();
        inverse_from<PASS - 1>(args, team);
    }
}

// A lane's two blocks of eight in the last pass: position i in one has the frequency k, and 7 - i in the other has -k. Blocks 0 and 1
// are their own opposites. Negating a number whose bits are reversed flips those below the highest one.
DEVICE void blocks_of(int lane, int* blocks) {
    const int top = lane == 0 ? 0 : 1 << (31 - __clz(lane));
    blocks[0] = lane + top;
    blocks[1] = lane == 0 ? 1 : 5 * top - 1 - lane;
}

// Replaces or multiplies the products at k of rows a and b. `z` and `opposite` are half the transform at k and -k.
DEVICE void multiply_two(float2 z, float2 opposite, bool first, float2* p) {
    const float2 a = make_float2(z.x + opposite.x, z.y - opposite.y), b = make_float2(z.y + opposite.y, opposite.x - z.x);
    p[0] = first ? a : times(p[0], a);
    p[1] = first ? b : times(p[1], b);
}

// The products' transform at k and -k, real and imaginary parts exchanged.
DEVICE void join_two(const float2* p, float2& z, float2& opposite) {
    z = make_float2(p[0].y + p[1].x, p[0].x - p[1].y);
    opposite = make_float2(p[1].x - p[0].y, p[0].x + p[1].y);
}

// Bit-reversed positions of q and 8 - q for q = 1, 2, 3: opposites in block 0.
DEVICE constexpr int ahead(int q) { return reversed(q, 3); }
DEVICE constexpr int behind(int q) { return reversed(8 - q, 3); }

// Multiplies a lane's products by its last pass. For two rows, those of k = 0 and m/2 are real: lane 0 has them in p[0] and p[1], as
// numbers of rows a and b.
template <bool COMPLEX>
DEVICE void multiply(const float2* a, int lane, bool first, float2* p) {
    if (COMPLEX) {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) p[i] = first ? a[i] : times(p[i], a[i]);
    } else if (lane != 0) {
#pragma unroll
        for (int i = 0; i < 8; i++) multiply_two(a[i], a[15 - i], first, p + 2 * i);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float2 twice = make_float2(2.0f * a[i].x, 2.0f * a[i].y);
            p[i] = first ? twice : make_float2(p[i].x * twice.x, p[i].y * twice.y);
        }
#pragma unroll
        for (int q = 1; q < 4; q++) multiply_two(a[ahead(q)], a[behind(q)], first, p + 2 * q);
#pragma unroll
        for (int i = 0; i < 4; i++) multiply_two(a[8 + i], a[15 - i], first, p + 8 + 2 * i);
    }
}

// The reverse: the transform of a lane's products, real and imaginary parts exchanged.
template <bool COMPLEX>
DEVICE void join(const float2* p, int lane, float2* a) {
    if (COMPLEX) {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) a[i] = make_float2(p[i].y, p[i].x);
    } else if (lane != 0) {
#pragma unroll
        for (int i = 0; i < 8; i++) join_two(p + 2 * i, a[i], a[15 - i]);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) a[i] = make_float2(p[i].y, p[i].x);
#pragma unroll
        for (int q = 1; q < 4; q++) join_two(p + 2 * q, a[ahead(q)], a[behind(q)]);
#pragma unroll
        for (int i = 0; i < 4; i++) join_two(p + 8 + 2 * i, a[8 + i], a[15 - i]);
    }
}

// The product of all factors' transforms, in registers.
template <bool COMPLEX, int OF_CHUNKS>
DEVICE Rows products(const Arguments& args, const Team<OF_CHUNKS>& team, i64 row, i64 end, float2 (*p)[PER_LANE]) {
    enum { SIZE = Team<OF_CHUNKS>::SIZE };
    Rows rows = {{0, 0}, {true, true}};
#pragma unroll 1
    for (int factor = 0; factor < args.factors; factor++) {
        if (args.distinct || factor == 0) {
            const int last = args.lists[args.distinct ? factor + 1 : args.factors];
            load<COMPLEX>(args, team, args.sources[factor], row, end, args.lists[factor], last, rows);
        } else {
            // Others have read the last pass's numbers.
            __syncthreads();
        }
#pragma unroll 1
        for (int chunk = 0; chunk < OF_CHUNKS; chunk++) {
            gather<COMPLEX>(args, factor, team.slots, team.work, team.thread + chunk * SIZE);
        }
        __syncthreads();
        forward_from<1>(args, team);
#pragma unroll
        for (int chunk = 0; chunk < OF_CHUNKS; chunk++) {
            const int lane = team.thread + chunk * SIZE;
            int blocks[2];
            blocks_of(lane, blocks);
            float2 a[PER_LANE];
#pragma unroll
            for (int which = 0; which < 2; which++) {
                const float2* own = team.work + padded(8 * blocks[which]);
#pragma unroll
                for (int i = 0; i < 8; i++) a[8 * which + i] = own[i];
                transform<3, false>(a + 8 * which, __ldg(args.twiddles + Pass<PASSES>::FORWARD + blocks[which]));
            }
            if (factor == 0) multiply<COMPLEX>(a, lane, true, p[chunk]);
            else multiply<COMPLEX>(a, lane, false, p[chunk]);
        }
    }
    // Without distinct inputs, every factor divides by the same power.
#pragma unroll
    for (int which = 0; which < 2; which++)
        if (!args.distinct) rows.exponents[which] *= args.factors;
    return rows;
}

// Transforms products back, up to the last pass: the first one works on the lane's own blocks.
template <bool COMPLEX, int OF_CHUNKS>
DEVICE void transform_back(const Arguments& args, const Team<OF_CHUNKS>& team, const float2 (*p)[PER_LANE]) {
#pragma unroll
    for (int chunk = 0; chunk < OF_CHUNKS; chunk++) {
        const int lane = team.thread + chunk * Team<OF_CHUNKS>::SIZE;
        float2 a[PER_LANE];
        join<COMPLEX>(p[chunk], lane, a);
        int blocks[2];
        blocks_of(lane, blocks);
#pragma unroll
        for (int which = 0; which < 2; which++) {
            float2 b[8];
#pragma unroll
            for (int i = 0; i < 8; i++) b[reversed(i, 3)] = a[8 * which + i];
            transform<3, true>(b, make_float2(1.0f, 0.0f));
            float2* own = team.work + padded(8 * blocks[which]);
#pragma unroll
            for (int i = 0; i < 8; i++) own[reversed(i, 3)] = b[i];
        }
    }
    __syncthreads();
    inverse_from<PASSES - 1>(args, team);
}

// Where the numbers of one row, or of one of its two parts, go, and what they are multiplied by.
struct Target {
    char* row;
    int start;
    int step;
    float factor;
    // The rest of a factor that might not be a number of its type.
    float rest;
};

// Writes a lane's features of one row or part. `bad` becomes NaN if one does not fit.
template <bool SINGLE>
DEVICE void put(const Target& target, int element, int lane, const float* values, float& bad) {
    typedef Pass<0> P;
    const float limit = SINGLE ? 0.0f : too_large(element);
#pragma unroll
    for (int k = 0; k < PER_LANE; k++) {
        const int column = target.start + (P::first(lane) + P::offset(k / P::R, reversed(k % P::R, P::LOG_R))) * target.step;
        const float value = values[k] * target.factor * target.rest;
        bad = __fmaf_rn(value, 0.0f, bad);
        if (SINGLE) {
            __stcs((float*)target.row + column, value);
        } else {
            if (fabsf(value) >= limit) bad = not_a_number();
            ((u16*)target.row)[column] = element == F16 ? float_to_half(value) : float_to_bfloat(value);
        }
    }
}

// The last inverse pass, and its results: the imaginary parts to the first target, real ones to the second, if they have rows.
template <int OF_CHUNKS>
DEVICE void put_all(const Arguments& args, const Team<OF_CHUNKS>& team, const Target* targets, float* bad) {
#pragma unroll 1
    for (int chunk = 0; chunk < OF_CHUNKS; chunk++) {
        const int lane = team.thread + chunk * Team<OF_CHUNKS>::SIZE;
        float2 a[PER_LANE];
        inverse<0>(args, team.work, lane, a);
#pragma unroll
        for (int which = 0; which < 2; which++) {
            if (!targets[which].row) continue;
            float values[PER_LANE];
#pragma unroll
            for (int k = 0; k < PER_LANE; k++) values[k] = which == 0 ? a[k].y : a[k].x;
            if (args.out_element == F32) put<true>(targets[which], F32, lane, values, bad[which]);
            else put<false>(targets[which], args.out_element, lane, values, bad[which]);
        }
    }
}

// Parts of one complex row, apart or alternating.
DEVICE void complex_targets(const Arguments& args, char* row, Target* targets) {
    const int step = args.interleaved ? 2 : 1;
    targets[0] = {row, 0, step, args.scale, 1.0f};
    targets[1] = {row, args.interleaved ? 1 : M, step, args.scale, 1.0f};
}

// A real row that was divided by a power of two.
DEVICE Target real_target(const Arguments& args, char* row, int exponent, bool good) {
    const int most = exponent < -240 ? -240 : exponent > 240 ? 240 : exponent;
    return {row, 0, 1, good ? args.scale * power_of_two(most / 2) : not_a_number(), power_of_two(most - most / 2)};
}

template <bool COMPLEX>
DEVICE void features(const Arguments& args) {
    extern __shared__ float2 shared[];
    enum { ROWS = COMPLEX ? 1 : 2 };
    const Team<CHUNKS> team(args, shared);
    const i64 at_once = (i64)(blockDim.x / Team<CHUNKS>::SIZE) * ROWS;
    for (i64 begin = blockIdx.x * at_once; begin < args.rows; begin += gridDim.x * at_once) {
        const i64 row = begin + team.number * ROWS;
        float2 p[CHUNKS][PER_LANE];
        const Rows rows = products<COMPLEX>(args, team, row, args.rows, p);
        prefetch<ROWS>(args, row + gridDim.x * at_once, team.thread, Team<CHUNKS>::SIZE);
        transform_back<COMPLEX>(args, team, p);
        Target targets[2];
        char* const out[2] = {row < args.rows ? row_of(args, row) : nullptr, row + 1 < args.rows ? row_of(args, row + 1) : nullptr};
        if (COMPLEX) {
            complex_targets(args, out[0], targets);
        } else {
#pragma unroll
            for (int which = 0; which < 2; which++)
                targets[which] = real_target(args, out[which], rows.exponents[which], rows.finite[which]);
        }
        float bad[2] = {};
        put_all(args, team, targets, bad);
#pragma unroll
        for (int which = 0; which < 2; which++)
            if (bad[which] != bad[which]) atomicMin(args.bad_row, (u64)(args.first_row + row + (COMPLEX ? 0 : which)));
        // Others may still read the last pass's numbers; slots are free.
    }
}

// Adds the products of a team's rows to a sum: of two real rows, to those of a, and the rest of the sum stays zero.
template <bool COMPLEX>
DEVICE void add(int lane, const Rows& rows, i64 left, const float2* p, float2* sum) {
    float by[2];
#pragma unroll
    for (int which = 0; which < 2; which++) {
        // Rows that are not there count for nothing; a power that is too large is infinite.
        const int exponent = rows.exponents[which];
        by[which] = left <= which ? 0.0f : COMPLEX ? 1.0f : power_of_two(exponent < -126 ? -126 : exponent > 128 ? 128 : exponent);
    }
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        if (COMPLEX) {
            sum[i].x += p[i].x * by[0];
            sum[i].y += p[i].y * by[0];
        } else if (i < 2 && lane == 0) {
            sum[i].x += p[i].x * by[0] + p[i].y * by[1];
        } else if (i % 2 == 0) {
            sum[i].x += p[i].x * by[0] + p[i + 1].x * by[1];
            sum[i].y += p[i].y * by[0] + p[i + 1].y * by[1];
        }
    }
}

// Sums of the features of groups of rows: products are added before they are transformed back. A team takes one group.
template <bool COMPLEX>
DEVICE void pooled(const Arguments& args) {
    extern __shared__ float2 shared[];
    enum { ROWS = COMPLEX ? 1 : 2 };
    const Team<1> team(args, shared);
    const i64 group = (i64)blockIdx.x * (blockDim.x / LANES) + team.number;
    const bool some = group < args.groups;
    const i64 begin = some ? args.starts[group] : 0, end = some ? args.starts[group + 1] : 0;
    float2 sum[1][PER_LANE] = {};
    bool good = true;
    for (i64 row = begin; __syncthreads_or(row < end); row += ROWS) {
        float2 p[1][PER_LANE];
        const Rows rows = products<COMPLEX>(args, team, row, end, p);
        good = good && rows.finite[0] && rows.finite[1];
        add<COMPLEX>(team.thread, rows, end - row, p[0], sum[0]);
    }
    transform_back<COMPLEX>(args, team, sum);
    Target targets[2] = {};
    char* const out = some ? row_of(args, group) : nullptr;
    if (COMPLEX) complex_targets(args, out, targets);
    else targets[0] = real_target(args, out, 0, good);
    float bad[2] = {};
    put_all(args, team, targets, bad);
    if (bad[0] != bad[0] || bad[1] != bad[1]) atomicMin(args.bad_row, (u64)(args.first_row + begin));
}

extern "C" __global__ void BOUNDS features_real(const __grid_constant__ Arguments args) { features<false>(args); }
extern "C" __global__ void BOUNDS features_complex(const __grid_constant__ Arguments args) { features<true>(args); }
extern "C" __global__ void POOLED_BOUNDS pooled_real(const __grid_constant__ Arguments args) { pooled<false>(args); }
extern "C" __global__ void POOLED_BOUNDS pooled_complex(const __grid_constant__ Arguments args) { pooled<true>(args); }
