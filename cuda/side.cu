// A second queue, for what the first need not wait for at once.
#include "engine_impl.h"

bool cuda_side_open(struct cuda_engine *e, struct error *err)
{
    struct side *s = &e->side;
    if (!e->q.hopper)
        return true; // on other GPUs nothing was measured that goes there
    s->q = e->q;
    s->q.stream = NULL;
    s->q.dependent = false; // launches follow those of another queue
    return CHECK_CUDA(cudaStreamCreateWithFlags(&s->q.stream, cudaStreamNonBlocking), err) &&
           CHECK_CUDA(cudaEventCreateWithFlags(&s->turn, cudaEventDisableTiming), err);
}

void cuda_side_close(struct cuda_engine *e)
{
    struct side *s = &e->side;
    if (s->turn)
        cudaEventDestroy(s->turn);
    if (s->q.stream)
        cudaStreamDestroy(s->q.stream);
}

static bool follow(const struct cuda_engine *e, cudaStream_t by, cudaStream_t of, struct error *err)
{
    return CHECK_CUDA(cudaEventRecord(e->side.turn, of), err) &&
           CHECK_CUDA(cudaStreamWaitEvent(by, e->side.turn, 0), err);
}

bool cuda_side_begin(const struct cuda_engine *e, struct error *err)
{
    return follow(e, e->side.q.stream, e->q.stream, err);
}

bool cuda_side_end(const struct cuda_engine *e, struct error *err)
{
    return follow(e, e->q.stream, e->side.q.stream, err);
}

bool cuda_is_captured(cudaStream_t stream, bool *is, struct error *err)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (!CHECK_CUDA(cudaStreamIsCapturing(stream, &status), err))
        return false;
    *is = status == cudaStreamCaptureStatusActive;
    return true;
}

bool cuda_side_join(const struct cuda_engine *e, struct error *err)
{
    bool captured = false;
    return !e->side.q.stream || (cuda_is_captured(e->side.q.stream, &captured, err) &&
                                 (!captured || cuda_side_end(e, err)));
}
