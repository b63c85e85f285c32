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

struct part {
    uint32_t i, n; // of n
};

// A job's script runs once, however many tasks the job has; srun starts each of those.
static bool is_script(void)
{
    const char *text = getenv("ENVIRONMENT");
    return text && strcmp(text, "BATCH") == 0 && !getenv("SLURM_STEP_ID");
}

// Which of the tasks this is. *found: there are such.
static bool from_tasks(struct part *p, bool *found, struct error *err)
{
    // (srun --preserve-env leaves SLURM_NTASKS that of the job.)
    const bool counted = variable("SLURM_STEP_NUM_TASKS", &p->n) || variable("SLURM_NTASKS", &p->n);
    const bool numbered = variable("SLURM_PROCID", &p->i);
    *found = counted && numbered;
    if (!counted)
        p->n = 1;
    if (!numbered)
        p->i = 0;
    if (p->n > 1 && (!numbered || is_script()))
        return error_set(err, ERR_USAGE,
                         "--shard auto: found %u tasks and no srun, which starts each of them: "
                         "write srun before hokku, or give the job --ntasks=1 --cpus-per-task=%u",
                         p->n, p->n);
    return p->i < p->n || error_set(err, ERR_USAGE,
                                    "--shard auto: found task %u of %u, expected less", p->i, p->n);
}

// Which job of an array this is, of which each has tasks like this one.
static bool from_array(struct part *p, const struct part *task, struct error *err)
{
    enum { ID, COUNT, MIN, MAX, STEP, N };
    static const char *const names[N] = {[ID] = "SLURM_ARRAY_TASK_ID",
                                         [COUNT] = "SLURM_ARRAY_TASK_COUNT",
                                         [MIN] = "SLURM_ARRAY_TASK_MIN",
                                         [MAX] = "SLURM_ARRAY_TASK_MAX",
                                         [STEP] = "SLURM_ARRAY_TASK_STEP"};
    uint32_t v[N];
    for (size_t i = 0; i < N; i++)
        if (!variable(names[i], &v[i])) {
            const char *text = getenv(names[i]);
            return error_set(err, ERR_USAGE,
                             "--shard auto: found %s%.40s for %s of an array's job, expected a "
                             "number; name the shard: --shard 0/4",
                             text ? "" : "nothing", text ? text : "", names[i]);
        }
    if (v[COUNT] == 1) // one of an array that is run again
        return error_set(err, ERR_USAGE,
                         "--shard auto: found task %u of an array of one, which does not tell of "
                         "how many it is one; of N counted from 0 it is --shard %llu/N",
                         v[ID], (unsigned long long)v[ID] * task->n + task->i);
    const uint64_t last = v[MIN] + ((uint64_t)v[COUNT] - 1) * v[STEP];
    if (v[COUNT] == 0 || v[STEP] == 0 || last != v[MAX] || v[ID] < v[MIN] || v[ID] > v[MAX] ||
        (v[ID] - v[MIN]) % v[STEP] != 0)
        return error_set(err, ERR_USAGE,
                         "--shard auto: found task %u of an array of %u from %u to %u in steps of "
                         "%u, expected an array without gaps: --array=0-%u",
                         v[ID], v[COUNT], v[MIN], v[MAX], v[STEP], v[COUNT] > 0 ? v[COUNT] - 1 : 0);
    *p = (struct part){.i = (v[ID] - v[MIN]) / v[STEP], .n = v[COUNT]};
    return true;
}

// Tasks of a job, jobs of an array, or both: tasks of each job of an array.
static bool from_slurm(struct options *o, struct error *err)
{
    struct part task, job = {.n = 1};
    bool tasks;
    const bool jobs = getenv("SLURM_ARRAY_TASK_ID") != NULL;
    if (!from_tasks(&task, &tasks, err) || (jobs && !from_array(&job, &task, err)))
        return false;
    if (!tasks && !jobs)
        return error_set(err, ERR_USAGE,
                         "--shard auto: found neither SLURM_PROCID and SLURM_NTASKS nor "
                         "SLURM_ARRAY_TASK_ID in the environment; outside of Slurm, name it: "
                         "--shard 0/4");
    const uint64_t n = (uint64_t)job.n * task.n;
    if (n > UINT32_MAX)
        return error_set(err, ERR_USAGE,
                         "--shard auto: found %u jobs of %u tasks, expected %u shards at most",
                         job.n, task.n, UINT32_MAX);
    o->shard = job.i * task.n + task.i;
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
