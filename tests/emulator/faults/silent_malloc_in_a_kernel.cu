// Memory from malloc and new: for one thread, for a block, and for the next launch.
// Expected: silent
struct Node {
    float value;
    Node* next;
    __device__ Node(float value, Node* next) : value(value), next(next) {}
};
__device__ float* kept;
__global__ void first(const float* x) {
    kept = static_cast<float*>(malloc(64 * sizeof(float)));
    memcpy(kept, x, 64 * sizeof(float));
}
__global__ void kernel(const float* x, float* y) {
    __shared__ float* buffer;
    if (threadIdx.x == 0) buffer = new float[64];
    __syncthreads();
    buffer[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    Node* tail = new Node(buffer[63 - threadIdx.x], nullptr);
    Node* head = new Node(kept[threadIdx.x], tail);
    y[threadIdx.x] = head->value + head->next->value;
    delete tail;
    delete head;
    __syncthreads();
    if (threadIdx.x == 0) delete[] buffer;
}
__global__ void last() { free(kept); }
void run(torch::Tensor x, torch::Tensor y) {
    first<<<1, 1>>>(x.data_ptr<float>());
    kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>());
    last<<<1, 1>>>();
}
