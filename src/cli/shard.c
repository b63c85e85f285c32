// --shard: which lines of --lines are this process's.
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

// Digits alone, up to `end`.
static bool read_number(const char *text, char end, uint32_t *n, const char **rest)
{
    char *stop;
    errno = 0;
    const unsigned long v = strtoul(text, &stop, 10);
    *n = (uint32_t)v;
    *rest = stop + 1;
    return text[0] >= '0' && text[0] <= '9' && *stop == end && errno == 0 && v <= UINT32_MAX;
}

// A number in the environment; false: it is not there.
static bool variable(const char *name, uint32_t *n)
{
    const char *text = getenv(name), *rest;
    return text && read_number(text, '\0', n, &rest);
}

// Tasks of a job, jobs of an array, or both: tasks of each job of an array.
static bool from_slurm(struct options *o, struct error *err)
{
    uint32_t task = 0, n_tasks = 1, id = 0, least = 0, step = 1, n_jobs = 1;
    const bool tasks = variable("SLURM_PROCID", &task) && variable("SLURM_NTASKS", &n_tasks);
    const bool jobs = variable("SLURM_ARRAY_TASK_ID", &id) &&
                      variable("SLURM_ARRAY_TASK_COUNT", &n_jobs) &&
                      variable("SLURM_ARRAY_TASK_MIN", &least);
    variable("SLURM_ARRAY_TASK_STEP", &step);
    if (!tasks && !jobs)
        return error_set(err, ERR_USAGE,
                         "--shard auto: found neither SLURM_PROCID and SLURM_NTASKS nor "
                         "SLURM_ARRAY_TASK_ID, _COUNT and _MIN in the environment; outside of "
                         "Slurm, name it: --shard 0/4");
    if (!tasks) {
        task = 0;
        n_tasks = 1;
    }
    uint64_t job = 0;
    if (!jobs)
        n_jobs = 1;
    else if (n_jobs == 1 && n_tasks == 1) // one of an array that is run again
        return error_set(err, ERR_USAGE,
                         "--shard auto: found task %u of an array of one, which would answer every "
                         "line; to run one of N again, name it: --shard %u/N",
                         id, id);
    else if (step == 0 || id < least || (id - least) % step != 0 || (id - least) / step >= n_jobs)
        return error_set(err, ERR_USAGE,
                         "--shard auto: found task %u of an array of %u that begins at %u in steps "
                         "of %u, expected an array without gaps: --array=0-%u",
                         id, n_jobs, least, step, n_jobs > 0 ? n_jobs - 1 : 0);
    else
        job = (id - least) / step;
    const uint64_t n = (uint64_t)n_jobs * n_tasks, shard = job * n_tasks + task;
    if (shard >= n || n > UINT32_MAX)
        return error_set(err, ERR_USAGE, "--shard auto: found task %u of %u, expected less", task,
                         n_tasks);
    o->shard = (uint32_t)shard;
    o->n_shards = (uint32_t)n;
    return true;
}

bool options_parse_shard(struct options *o, const char *value, struct error *err)
{
    const char *rest, *end;
    if (strcmp(value, "auto") == 0)
        return from_slurm(o, err);
    if (!read_number(value, '/', &o->shard, &rest) ||
        !read_number(rest, '\0', &o->n_shards, &end) || o->shard >= o->n_shards)
        return error_set(
            err, ERR_USAGE,
            "--shard: found \"%.40s\", expected I/N with I from 0 to N - 1, as in 0/4, "
            "or auto",
            value);
    return true;
}

bool options_check_draft(const struct options *o, struct error *err)
{
    if (o->spec == SPEC_DRAFT && !o->model_draft)
        return error_set(err, ERR_USAGE,
                         "--spec draft: found no draft model, expected -md FILE with it");
    return true;
}

bool options_check_lines(const struct options *o, struct error *err)
{
    static const char *const of_lines[] = {"--unordered", "--shard", "--parallel"};
    if (o->lines && o->turns)
        return error_set(err, ERR_USAGE, "--lines and --turns cannot be combined");
    for (size_t i = 0; i < sizeof of_lines / sizeof *of_lines && !o->lines; i++)
        if (options_named(o, of_lines[i])) // (in a configuration it waits for --lines)
            return error_set(err, ERR_USAGE, "%s is for --lines, which is not there", of_lines[i]);
    if (options_named(o, "--null") && !o->lines && !o->turns)
        return error_set(err, ERR_USAGE,
                         "--null is for --lines or --turns, neither of which is there");
    return true;
}
