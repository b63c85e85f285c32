// Weights cut for slices (model/slice.h): some rows of a matrix, or numbers of a vector, or
// columns, each in runs.
#ifndef HOKKU_MODEL_SLICE_CUT_H
#define HOKKU_MODEL_SLICE_CUT_H

#include "model/model.h"

enum { MAX_RUNS = 16 };

struct runs {
    uint32_t n;
    struct weight_run run[MAX_RUNS];
};

struct weight_run run_times(struct weight_run r, uint32_t n); // of things that are n others each
struct runs runs_times(const struct runs *r, uint32_t n);
struct runs runs_of_one(struct weight_run r);
// Behind those that there are (fewer than MAX_RUNS), which it may prolong.
void runs_add(struct runs *r, uint32_t from, struct weight_run run);

// The slice that is made; an error stays.
struct cutter {
    struct model *slice; // owns what is copied
    bool failed;
    struct error *err;
};

// Absent weights stay absent, here and below. Rows, or of a vector numbers.
void cut_rows(struct cutter *c, struct weight *w, const struct runs *r);
void cut_columns(struct cutter *c, struct weight *w, const struct runs *r);
// Of a vector with n numbers for each expert, some for each.
void cut_of_each(struct cutter *c, struct weight *w, uint32_t n, struct weight_run r);
// Some of those stacked.
void cut_stack(struct weight *w, struct weight_run r);

#endif
