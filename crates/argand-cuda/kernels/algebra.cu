// What learning on features needs beside cuBLAS: rows in double precision, triangles row by row, and factors of small blocks.
//
// Matrices are row by row, with `stride` numbers from one row to the next; of symmetric and triangular ones only the lower triangle counts. A
// packed triangle has row i in the numbers from i (i + 1) / 2 on.
//
// Bound: device memory. Every kernel reads and writes its tables once; `factor_block` is bound by the steps that depend on each other.
#include "common.cuh"

#define KERNEL extern "C" __global__ void

#define EACH_ROW(row, rows) for (i64 row = blockIdx.x; row < (rows); row += gridDim.x)

// Row i of the result: features of row order[i], then `more` numbers of that row, then zeros.
KERNEL widen(const float* features, i64 features_stride, i64 dim, const double* others, i64 more, const u32* order, double* out,
             i64 stride, i64 rows) {
    EACH_ROW(row, rows) {
        const i64 from = order ? (i64)order[row] : row;
        for (i64 column = threadIdx.x; column < stride; column += blockDim.x) {
            double value = 0;
            if (column < dim) {
                value = (double)features[from * features_stride + column];
            } else if (column < dim + more) {
                value = others[from * more + column - dim];
            }
            out[row * stride + column] = value;
        }
    }
}

KERNEL pack(const double* matrix, i64 stride, double* packed, i64 size) {
    EACH_ROW(row, size) {
        for (i64 column = threadIdx.x; column <= row; column += blockDim.x) {
            packed[row * (row + 1) / 2 + column] = matrix[row * stride + column];
        }
    }
}

KERNEL unpack(const double* packed, double* matrix, i64 stride, i64 size) {
    EACH_ROW(row, size) {
        for (i64 column = threadIdx.x; column <= row; column += blockDim.x) {
            matrix[row * stride + column] = packed[row * (row + 1) / 2 + column];
        }
    }
}

// The most rows of a block that `factor_block` factors; BLOCK in algebra.rs.
#define BLOCK 64

// A = L L^T in place, for one block on the diagonal. One block of threads. What is not positive definite becomes NaN.
KERNEL factor_block(double* matrix, i64 stride, i64 all) {
    __shared__ double block[BLOCK][BLOCK + 1];
    const int size = (int)all;
    for (int at = threadIdx.x; at < size * size; at += blockDim.x) {
        const int row = at / size, column = at % size;
        if (column <= row) block[row][column] = matrix[row * stride + column];
    }
    __syncthreads();
    for (int pivot = 0; pivot < size; ++pivot) {
        const double root = sqrt(block[pivot][pivot]);
        __syncthreads();
        for (int row = pivot + threadIdx.x; row < size; row += blockDim.x) {
            block[row][pivot] = row == pivot ? root : block[row][pivot] / root;
        }
        __syncthreads();
        const int left = size - pivot - 1;
        for (int at = threadIdx.x; at < left * left; at += blockDim.x) {
            const int row = pivot + 1 + at / left, column = pivot + 1 + at % left;
            if (column <= row) block[row][column] -= block[row][pivot] * block[column][pivot];
        }
        __syncthreads();
    }
    for (int at = threadIdx.x; at < size * size; at += blockDim.x) {
        const int row = at / size, column = at % size;
        if (column <= row) matrix[row * stride + column] = block[row][column];
    }
}

// The sum of squares of every row, in an order that depends on nothing but its length.
KERNEL squared_norms(const double* matrix, i64 stride, i64 columns, double* out, i64 rows) {
    __shared__ double sums[256];
    EACH_ROW(row, rows) {
        double sum = 0;
        for (i64 column = threadIdx.x; column < columns; column += blockDim.x) {
            const double value = matrix[row * stride + column];
            sum += value * value;
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) out[row] = sums[0];
        __syncthreads();
    }
}
