#include "cli/model_file.h"

#include <string.h>

#include "cli/hub_setup.h"
#include "cli/shipped.h"

static char *download(const struct options *o, const char *name, const struct cancel *cancel,
                      struct error *err)
{
    struct hub_setup hub;
    struct buf path = {0};
    bool ok = hub_setup_init(&hub, o, cancel, err) && hub_fetch(&hub.opt, name, &path, err);
    hub_setup_release(&hub);
    if (!ok)
        buf_release(&path);
    return path.data;
}

char *model_file(const struct options *o, const struct cancel *cancel, struct error *err)
{
    if (o->hf_repo)
        return download(o, o->hf_repo, cancel, err);
    if (o->model && strncmp(o->model, "https://", 8) == 0)
        return download(o, o->model, cancel, err);
    if (o->model && strncmp(o->model, "http://", 7) == 0) {
        error_set(err, ERR_MODEL, "-m: found an http:// address, expected https:// or a file");
        return NULL;
    }
    if (!o->model)
        return shipped_model(err);
    char *path = strdup(o->model);
    if (!path)
        error_oom(err, "the model's path", strlen(o->model));
    return path;
}
