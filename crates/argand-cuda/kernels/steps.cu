// One step of a sketch per launch, for every method and size, in float and double.
//
// Vectors lie in planes of rows x columns, real and imaginary parts apart; a missing imaginary plane is null. Fused kernels do
// better where they apply; these are the reference, and the rest.
//
// Bound: device memory. Every step reads and writes its planes once, except `dense`, which is bound by multiplications.
//
// Compiled twice: REAL is float or double.
#include "common.cuh"

typedef REAL T;

#define KERNEL extern "C" __global__ void

#define EACH(index, count) \
    for (i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x; index < (count); index += (i64)gridDim.x * blockDim.x)

// x~ = (sqrt(gamma) x, sqrt(nu)): rows x dim.
KERNEL load(const void* x, int element, i64 stride, int columns, int dim, double root_gamma, double root_coef0, T* out,
                 i64 rows) {
    EACH(at, rows * dim) {
        const i64 row = at / dim;
        const int column = (int)(at % dim);
        out[at] = column < columns ? read<T>(x, element, row * stride + column) * (T)root_gamma : (T)root_coef0;
    }
}

// Features: the first columns of a plane of some width, times a scale, into every step-th column of the result from `start` on.
// Records the first row that does not fit.
KERNEL store(const T* plane, int width, int columns, double scale, void* out, int element, i64 stride, int start, int step, i64 rows,
                  i64 first_row, u64* bad_row) {
    EACH(at, rows * columns) {
        const i64 row = at / columns;
        const T value = plane[row * width + at % columns] * (T)scale;
        write<T>(out, element, row * stride + start + (at % columns) * step, value);
        if (!fits<T>(element, value)) atomicMin(bad_row, (u64)(first_row + row));
    }
}

// The reverse of `store`, for cotangents.
KERNEL fetch(const void* in, int element, i64 stride, int start, int step, double scale, T* plane, int columns, i64 rows) {
    EACH(at, rows * columns) {
        plane[at] = read<T>(in, element, at / columns * stride + start + (at % columns) * step) * (T)scale;
    }
}

KERNEL scale(T* plane, double factor, i64 count) {
    EACH(at, count) plane[at] *= (T)factor;
}

// Replaces `into` by a new factor, or multiplies it.
DEVICE void join(T* into_re, T* into_im, i64 at, T re, T im, int first) {
    if (first) {
        into_re[at] = re;
        if (into_im) into_im[at] = im;
    } else if (into_im) {
        const T old_re = into_re[at], old_im = into_im[at];
        into_re[at] = old_re * re - old_im * im;
        into_im[at] = old_re * im + old_im * re;
    } else {
        into_re[at] *= re;
    }
}

KERNEL multiply(T* into_re, T* into_im, const T* re, const T* im, int first, i64 count) {
    EACH(at, count) join(into_re, into_im, at, re[at], im ? im[at] : T(0), first);
}

KERNEL product(T* into_re, T* into_im, const T* a_re, const T* a_im, const T* b_re, const T* b_im, i64 count) {
    EACH(at, count) {
        if (into_im) {
            const T re = a_re[at] * b_re[at] - a_im[at] * b_im[at];
            into_im[at] = a_re[at] * b_im[at] + a_im[at] * b_re[at];
            into_re[at] = re;
        } else {
            into_re[at] = a_re[at] * b_re[at];
        }
    }
}

// (Re, Im) side by side, times a scale: the rows that a CRAFT projection reads.
KERNEL side_by_side(const T* re, const T* im, int columns, double factor, T* out, i64 rows) {
    const int width = im ? 2 * columns : columns;
    EACH(at, rows * width) {
        const i64 row = at / width;
        const int column = (int)(at % width);
        out[at] = (column < columns ? re[row * columns + column] : im[row * columns + column - columns]) * (T)factor;
    }
}

// And back: the imaginary part changes its sign, as g is the conjugated cotangent.
KERNEL apart(const T* in, int columns, T* re, T* im, int parts, i64 rows) {
    const int width = parts * columns;
    EACH(at, rows * width) {
        const i64 row = at / width;
        const int column = (int)(at % width);
        if (column < columns) re[row * columns + column] = in[at];
        else im[row * columns + column - columns] = -in[at];
    }
}

// Rows of this length in shared memory, or in a block's part of global work space if they do not fit.
DEVICE T* work_space(T* global, i64 length) {
    extern __shared__ double shared[];
    return global ? global + (i64)blockIdx.x * length : (T*)shared;
}

// Butterflies from the largest stride to the smallest, as on the processor: the same bits.
DEVICE void hadamard_transform(T* data, int length) {
    for (int stride = length / 2; stride > 0; stride /= 2) {
        for (int pair = threadIdx.x; pair < length / 2; pair += blockDim.x) {
            const int low = 2 * pair - (pair & (stride - 1)), high = low + stride;
            const T a = data[low], b = data[high];
            data[low] = a + b;
            data[high] = a - b;
        }
        __syncthreads();
    }
}

// Multiplies a join by P H D x, one block per row.
KERNEL srht(const T* x_re, const T* x_im, int dim, int padded, const u8* turns, const u32* sampled, int outputs,
                 int complex, T* into_re, T* into_im, int first, T* global, i64 rows) {
    T* re = work_space(global, (complex ? 2 : 1) * (i64)padded);
    T* im = complex ? re + padded : nullptr;
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int at = threadIdx.x; at < padded; at += blockDim.x) {
            T new_re = 0, new_im = 0;
            if (at < dim) {
                const T old_re = x_re[row * dim + at], old_im = x_im ? x_im[row * dim + at] : T(0);
                const T c = turn_re<T>(turns[at]), s = turn_im<T>(turns[at]);
                new_re = c * old_re - s * old_im;
                new_im = s * old_re + c * old_im;
            }
            re[at] = new_re;
            if (complex) im[at] = new_im;
        }
        __syncthreads();
        hadamard_transform(re, padded);
        if (complex) hadamard_transform(im, padded);
        for (int at = threadIdx.x; at < outputs; at += blockDim.x) {
            const u32 from = sampled[at];
            join(into_re, into_im, row * outputs + at, re[from], complex ? im[from] : T(0), first);
        }
        __syncthreads();
    }
}

// Adds D H P^T v to a gradient, one block per row. `starts` and `order` list the outputs of each row of H.
KERNEL srht_transpose(const T* v_re, const T* v_im, int outputs, const u32* starts, const u32* order, const u8* turns,
                           int dim, int padded, int complex, T* gradient_re, T* gradient_im, T* global, i64 rows) {
    T* re = work_space(global, (complex ? 2 : 1) * (i64)padded);
    T* im = complex ? re + padded : nullptr;
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int at = threadIdx.x; at < padded; at += blockDim.x) {
            T sum_re = 0, sum_im = 0;
            for (u32 entry = starts[at]; entry < starts[at + 1]; entry++) {
                sum_re += v_re[row * outputs + order[entry]];
                if (complex) sum_im += v_im[row * outputs + order[entry]];
            }
            re[at] = sum_re;
            if (complex) im[at] = sum_im;
        }
        __syncthreads();
        hadamard_transform(re, padded);
        if (complex) hadamard_transform(im, padded);
        for (int at = threadIdx.x; at < dim; at += blockDim.x) {
            const T c = turn_re<T>(turns[at]), s = turn_im<T>(turns[at]), part_re = re[at], part_im = complex ? im[at] : T(0);
            gradient_re[row * dim + at] += c * part_re - s * part_im;
            if (gradient_im) gradient_im[row * dim + at] += s * part_re + c * part_im;
        }
        __syncthreads();
    }
}

// Signed sums by table lookup, in the processor's order: groups of six coordinates, four groups at a time.
// `codes` has, for every block of 24 coordinates and every row of W, the negative signs of the four groups.
//
// A block of 256 threads takes eight rows and, for each thread, several rows of W: as many sums as fit into registers.
enum { GROUP = 6, SUMS = 64, GROUPS = 4, BLOCK = GROUP * GROUPS, SIGN_ROWS = 8, SIGN_OUTPUTS = sizeof(T) == 4 ? 8 : 4 };

KERNEL signed_sums(const T* x, int dim, const uchar4* codes, int outputs, T* sums, i64 rows) {
    __shared__ T tables[GROUPS * SUMS][SIGN_ROWS], own[BLOCK][SIGN_ROWS];
    const int blocks = (dim + BLOCK - 1) / BLOCK;
    // Each thread makes the eight sums of one row and group whose last three signs are those of `eight`.
    const int row = threadIdx.x % SIGN_ROWS, eight = threadIdx.x / SIGN_ROWS % 8, group = threadIdx.x / SUMS;
    const i64 first_row = (i64)blockIdx.y * SIGN_ROWS;
    const int first_output = blockIdx.x * blockDim.x * SIGN_OUTPUTS + threadIdx.x;
    T totals[SIGN_OUTPUTS][SIGN_ROWS] = {};
    for (int block = 0; block < blocks; block++) {
        if (threadIdx.x < BLOCK * SIGN_ROWS) {
            const int at = block * BLOCK + threadIdx.x % BLOCK;
            const i64 from = first_row + threadIdx.x / BLOCK;
            own[threadIdx.x % BLOCK][threadIdx.x / BLOCK] = at < dim && from < rows ? x[from * dim + at] : T(0);
        }
        __syncthreads();
        T value[GROUP];
#pragma unroll
        for (int k = 0; k < GROUP; k++) value[k] = own[group * GROUP + k][row];
#pragma unroll
        for (int k = 3; k < GROUP; k++) value[k] = (eight >> (k - 3)) & 1 ? -value[k] : value[k];
        const T high = (value[3] + value[4]) + value[5], sum = value[0] + value[1], difference = value[0] - value[1];
#pragma unroll
        for (int one = 0; one < 8; one++) {
            const T pair = (one & 3) == 0 ? sum : (one & 3) == 1 ? -difference : (one & 3) == 2 ? difference : -sum;
            tables[group * SUMS + 8 * eight + one][row] = (one & 4 ? pair - value[2] : pair + value[2]) + high;
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < SIGN_OUTPUTS; j++) {
            const int output = first_output + j * blockDim.x;
            if (output >= outputs) continue;
            const uchar4 code = codes[(i64)block * outputs + output];
#pragma unroll
            for (int row = 0; row < SIGN_ROWS; row++) {
                const T low = tables[code.x][row] + tables[SUMS + code.y][row];
                totals[j][row] += low + (tables[2 * SUMS + code.z][row] + tables[3 * SUMS + code.w][row]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < SIGN_OUTPUTS; j++) {
        const int output = first_output + j * blockDim.x;
#pragma unroll
        for (int row = 0; row < SIGN_ROWS; row++) {
            if (output < outputs && first_row + row < rows) sums[(first_row + row) * outputs + output] = totals[j][row];
        }
    }
}

// From pairs of real projections u, v of Re x, and of Im x if there is one, to a join.
// Signs: w = (u + v)/2 + i(u - v)/2. Weights: w = u + iv.
KERNEL combine(const T* of_re, const T* of_im, int outputs, int complex, int halves, T* into_re, T* into_im, int first,
                    i64 rows) {
    EACH(at, rows * outputs) {
        if (!complex) {
            // A real projection of a complex vector does not occur.
            join(into_re, into_im, at, of_re[at], T(0), first);
            continue;
        }
        const T u = of_re[2 * at], v = of_re[2 * at + 1];
        const T other_u = of_im ? of_im[2 * at] : T(0), other_v = of_im ? of_im[2 * at + 1] : T(0);
        T re, im;
        if (halves) {
            re = u + v;
            im = u - v;
            if (of_im) {
                re = re - (other_u - other_v);
                im = im + (other_u + other_v);
            }
            re *= T(0.5);
            im *= T(0.5);
        } else {
            re = u - other_v;
            im = v + other_u;
        }
        join(into_re, into_im, at, re, im, first);
    }
}

// For w (a + ib) with w = u + iv, the factors of u and v: (a, -b) for the real part, (b, a) for the imaginary one.
KERNEL spread(const T* v_re, const T* v_im, int imaginary, T* out, i64 count) {
    EACH(at, count) {
        out[2 * at] = imaginary ? v_im[at] : v_re[at];
        out[2 * at + 1] = imaginary ? v_re[at] : -v_im[at];
    }
}

// C = A B^T (`transposed`) or C += A B, row-major, with C rows x columns and an inner length: 64 x 64 entries per block of 256
// threads, sixteen per thread. Used where cuBLAS is not found.
KERNEL dense(const T* a, const T* b, T* c, i64 rows, int columns, int inner, int transposed) {
    enum { TILE = 64, DEPTH = 16 };
    __shared__ T left[DEPTH][TILE + 1], right[DEPTH][TILE + 1];
    const i64 row0 = (i64)blockIdx.y * TILE;
    const int column0 = blockIdx.x * TILE, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    T sums[4][4] = {};
    for (int start = 0; start < inner; start += DEPTH) {
        for (int entry = threadIdx.x; entry < TILE * DEPTH; entry += blockDim.x) {
            const int k = entry % DEPTH, at = entry / DEPTH;
            left[k][at] = row0 + at < rows && start + k < inner ? a[(row0 + at) * inner + start + k] : T(0);
            if (transposed) {
                right[k][at] = column0 + at < columns && start + k < inner ? b[(i64)(column0 + at) * inner + start + k] : T(0);
            }
        }
        if (!transposed) {
            for (int entry = threadIdx.x; entry < TILE * DEPTH; entry += blockDim.x) {
                const int k = entry / TILE, at = entry % TILE;
                right[k][at] = column0 + at < columns && start + k < inner ? b[(i64)(start + k) * columns + column0 + at] : T(0);
            }
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            T x[4], y[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[i] = left[k][ty + 16 * i];
                y[i] = right[k][tx + 16 * i];
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] = fma(x[i], y[j], sums[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const i64 row = row0 + ty + 16 * i;
            const int column = column0 + tx + 16 * j;
            if (row < rows && column < columns) {
                T* at = c + row * columns + column;
                *at = transposed ? sums[i][j] : *at + sums[i][j];
            }
        }
}

// Sums of the coordinates in each bucket, in ascending order.
KERNEL count_sketch(const T* x_re, const T* x_im, int dim, const u32* starts, const u32* order, const u8* turns,
                         int outputs, T* re, T* im, i64 rows) {
    EACH(at, rows * outputs) {
        const i64 row = at / outputs;
        const u32 bucket = (u32)(at % outputs);
        T sum_re = 0, sum_im = 0;
        for (u32 entry = starts[bucket]; entry < starts[bucket + 1]; entry++) {
            const u32 column = order[entry];
            const T c = turn_re<T>(turns[column]), s = turn_im<T>(turns[column]);
            const T old_re = x_re[row * dim + column], old_im = x_im ? x_im[row * dim + column] : T(0);
            sum_re += c * old_re - s * old_im;
            sum_im += s * old_re + c * old_im;
        }
        re[at] = sum_re;
        im[at] = sum_im;
    }
}

KERNEL count_sketch_transpose(const T* v_re, const T* v_im, int outputs, const u32* buckets, const u8* turns, int dim,
                                   T* gradient_re, T* gradient_im, i64 rows) {
    EACH(at, rows * dim) {
        const i64 row = at / dim;
        const int column = (int)(at % dim);
        const i64 from = row * outputs + buckets[column];
        const T c = turn_re<T>(turns[column]), s = turn_im<T>(turns[column]);
        gradient_re[at] += c * v_re[from] - s * v_im[from];
        if (gradient_im) gradient_im[at] += s * v_re[from] + c * v_im[from];
    }
}

// One row's discrete Fourier transform whose length is a power of two. `roots` are exp(-2 pi i k/length). From natural to
// bit-reversed order (Gentleman and Sande), or from bit-reversed to natural order (Cooley and Tukey).
DEVICE void to_reversed(T* re, T* im, int length, const T* roots, T direction) {
    for (int stride = length / 2; stride > 0; stride /= 2) {
        const int step = length / (2 * stride);
        for (int pair = threadIdx.x; pair < length / 2; pair += blockDim.x) {
            const int within = pair & (stride - 1), low = 2 * pair - within, high = low + stride;
            const T a_re = re[low], a_im = im[low], b_re = re[high], b_im = im[high];
            const T d_re = a_re - b_re, d_im = a_im - b_im, c = roots[2 * within * step], s = direction * roots[2 * within * step + 1];
            re[low] = a_re + b_re;
            im[low] = a_im + b_im;
            re[high] = d_re * c - d_im * s;
            im[high] = d_re * s + d_im * c;
        }
        __syncthreads();
    }
}

DEVICE void from_reversed(T* re, T* im, int length, const T* roots, T direction) {
    for (int stride = 1; stride < length; stride *= 2) {
        const int step = length / (2 * stride);
        for (int pair = threadIdx.x; pair < length / 2; pair += blockDim.x) {
            const int within = pair & (stride - 1), low = 2 * pair - within, high = low + stride;
            const T c = roots[2 * within * step], s = direction * roots[2 * within * step + 1];
            const T b_re = re[high] * c - im[high] * s, b_im = re[high] * s + im[high] * c, a_re = re[low], a_im = im[low];
            re[low] = a_re + b_re;
            im[low] = a_im + b_im;
            re[high] = a_re - b_re;
            im[high] = a_im - b_im;
        }
        __syncthreads();
    }
}

// Multiplies a join by the transform of every row, times a factor; one block per row.
//
// `length` is the transform's; `padded` is the same if that is a power of two, and frequencies are then in bit-reversed order:
// `reversed` says whether the source is. Other lengths take Bluestein's algorithm with a convolution of length `padded`; all is
// then in natural order. `chirp` is exp(-pi i k^2/length), `filter` the bit-reversed transform of its conjugate, divided by `padded`.
KERNEL fourier(const T* source_re, const T* source_im, int length, int padded, const T* roots, const T* chirp,
                    const T* filter, int inverse, int reversed, double factor, T* into_re, T* into_im, int first, T* global,
                    i64 rows) {
    T* re = work_space(global, 2 * (i64)padded);
    T* im = re + padded;
    const T direction = inverse ? T(-1) : T(1);
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int at = threadIdx.x; at < padded; at += blockDim.x) {
            T value_re = 0, value_im = 0;
            if (at < length) {
                value_re = source_re[row * length + at];
                value_im = source_im ? source_im[row * length + at] : T(0);
                if (padded != length) {
                    const T c = chirp[2 * at], s = direction * chirp[2 * at + 1], old = value_re;
                    value_re = old * c - value_im * s;
                    value_im = old * s + value_im * c;
                }
            }
            re[at] = value_re;
            im[at] = value_im;
        }
        __syncthreads();
        if (padded == length) {
            if (reversed) from_reversed(re, im, padded, roots, direction);
            else to_reversed(re, im, padded, roots, direction);
        } else {
            // The filter of the inverse is the conjugate one; conjugating the data around the convolution does the same.
            if (inverse) {
                for (int at = threadIdx.x; at < padded; at += blockDim.x) im[at] = -im[at];
                __syncthreads();
            }
            to_reversed(re, im, padded, roots, T(1));
            for (int at = threadIdx.x; at < padded; at += blockDim.x) {
                const T c = filter[2 * at], s = filter[2 * at + 1], old = re[at];
                re[at] = old * c - im[at] * s;
                im[at] = old * s + im[at] * c;
            }
            __syncthreads();
            from_reversed(re, im, padded, roots, T(-1));
        }
        for (int at = threadIdx.x; at < length; at += blockDim.x) {
            T value_re = re[at], value_im = im[at];
            if (padded != length) {
                if (inverse) value_im = -value_im;
                const T c = chirp[2 * at], s = direction * chirp[2 * at + 1], old = value_re;
                value_re = old * c - value_im * s;
                value_im = old * s + value_im * c;
            }
            join(into_re, into_im, row * length + at, value_re * (T)factor, value_im * (T)factor, first);
        }
        __syncthreads();
    }
}

// Rows scaled to unit norm, and their norms; one block per row. Norms are in double, scaled by the largest entry.
KERNEL normalise(const void* x, int element, i64 stride, int dim, T* out, double* norms, i64 rows) {
    __shared__ double partial[256];
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        double most = 0;
        for (int at = threadIdx.x; at < dim; at += blockDim.x) most = fmax(most, fabs((double)read<T>(x, element, row * stride + at)));
        partial[threadIdx.x] = most;
        __syncthreads();
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) partial[threadIdx.x] = fmax(partial[threadIdx.x], partial[threadIdx.x + half]);
            __syncthreads();
        }
        most = partial[0];
        __syncthreads();
        double sum = 0;
        for (int at = threadIdx.x; at < dim; at += blockDim.x) {
            const double value = (double)read<T>(x, element, row * stride + at) / fmax(most, 2.2250738585072014e-308);
            sum += value * value;
        }
        partial[threadIdx.x] = sum;
        __syncthreads();
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
            __syncthreads();
        }
        const double norm = most * sqrt(partial[0]);
        __syncthreads();
        if (threadIdx.x == 0) norms[row] = norm;
        for (int at = threadIdx.x; at < dim; at += blockDim.x) {
            out[row * dim + at] = (T)((double)read<T>(x, element, row * stride + at) / fmax(norm, 2.2250738585072014e-308));
        }
    }
}

// Angles become cosines, and sines in another plane.
KERNEL cosines(T* angles, T* sines, i64 count) {
    EACH(at, count) {
        double s, c;
        sincos((double)angles[at], &s, &c);
        angles[at] = (T)c;
        sines[at] = (T)s;
    }
}

// v = cos * of_sines - sin * of_cosines, over of_cosines.
KERNEL cosine_cotangent(const T* cos, const T* sin, T* of_cosines, const T* of_sines, i64 count) {
    EACH(at, count) of_cosines[at] = cos[at] * of_sines[at] - sin[at] * of_cosines[at];
}

// The gradient across the direction of every row, over its norm; one block per row.
KERNEL across(const T* x, T* gradient, const double* norms, int dim, i64 rows) {
    __shared__ double partial[256];
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        double sum = 0;
        for (int at = threadIdx.x; at < dim; at += blockDim.x) sum += (double)x[row * dim + at] * (double)gradient[row * dim + at];
        partial[threadIdx.x] = sum;
        __syncthreads();
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
            __syncthreads();
        }
        const double along = partial[0];
        __syncthreads();
        for (int at = threadIdx.x; at < dim; at += blockDim.x) {
            const double g = (double)gradient[row * dim + at] - (double)x[row * dim + at] * along;
            gradient[row * dim + at] = (T)(g / fmax(norms[row], 2.2250738585072014e-308));
        }
    }
}

// Adds the features of some rows to the sums of their groups, row by row. Group g has the rows from starts[g] to starts[g + 1].
KERNEL add_to_groups(const T* features, int columns, const i64* starts, i64 groups, i64 first_row, i64 rows, double* sums) {
    for (i64 group = blockIdx.x; group < groups; group += gridDim.x) {
        const i64 begin = max(starts[group], first_row), end = min(starts[group + 1], first_row + rows);
        if (begin >= end) continue;
        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            double sum = sums[group * columns + column];
            for (i64 row = begin; row < end; row++) sum += (double)features[(row - first_row) * columns + column];
            sums[group * columns + column] = sum;
        }
    }
}

// The sums of groups as rows of a table. Records the first row of a group whose sum does not fit.
KERNEL store_groups(const double* sums, int columns, const i64* starts, void* out, int element, i64 stride, i64 groups, u64* bad_row) {
    EACH(at, groups * columns) {
        const i64 group = at / columns;
        const T value = (T)sums[at];
        write<T>(out, element, group * stride + at % columns, value);
        if (!fits<T>(element, value)) atomicMin(bad_row, (u64)starts[group]);
    }
}

// The cotangent of each row's group.
KERNEL repeat_groups(const void* cotangent, int element, i64 stride, const i64* starts, i64 groups, i64 first_row, i64 rows, int columns,
                     T* out) {
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const i64 group = group_of(starts, groups, first_row + row);
        for (int column = threadIdx.x; column < columns; column += blockDim.x) {
            out[row * columns + column] = read<T>(cotangent, element, group * stride + column);
        }
    }
}
