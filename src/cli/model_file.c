#include "cli/model_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/hub_setup.h"
#include "cli/shipped.h"
#include "hub/listing.h"

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

// USER/REPO where no such file is, which people's hands know from elsewhere.
static bool is_of_the_hub(const char *name)
{
    struct hub_spec spec;
    struct error e = {0};
    return access(name, F_OK) != 0 && errno == ENOENT && !hub_is_gguf(name) &&
           hub_spec_parse(name, &spec, &e);
}

void model_choose(struct options *o, const char *name)
{
    const bool hub = is_of_the_hub(name);
    o->hf_repo = hub ? name : NULL;
    o->model = hub ? NULL : name;
}

// llama3.2:3b, as other programs name models.
static bool is_bare_word(const char *name)
{
    return access(name, F_OK) != 0 && errno == ENOENT && !strchr(name, '/') && !hub_is_gguf(name);
}

// The same behind the name of a host, as other programs write it.
static const char *without_host(const char *name)
{
    static const char *const hosts[] = {"hf.co/", "huggingface.co/"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (strncmp(name, hosts[i], strlen(hosts[i])) == 0)
            return name + strlen(hosts[i]);
    return name;
}

// A file, or an address that it is downloaded from. label: before what is wrong with the name.
static char *named(const struct options *o, const char *label, const char *name,
                   const struct cancel *cancel, struct error *err)
{
    if (strncmp(name, "https://", 8) == 0)
        return download(o, name, cancel, err);
    if (strncmp(name, "http://", 7) == 0) {
        error_set(err, ERR_MODEL, "%sfound an http:// address, expected https:// or a file", label);
        return NULL;
    }
    if (!*name) { // a script's variable that is not set
        error_set(err, ERR_USAGE, "%sfound an empty name, expected a GGUF file or https URL",
                  label);
        return NULL;
    }
    const char *repo = without_host(name);
    if (is_of_the_hub(repo)) {
        error_set(
            err, ERR_MODEL,
            "%.200s: no such file; of the Hugging Face Hub, hokku pull %.200s gets it and prints "
            "the file",
            name, repo);
        return NULL;
    }
    if (is_bare_word(name)) {
        error_set(err, ERR_MODEL,
                  "%.200s: cannot open: No such file or directory; expected a GGUF file: there are "
                  "no short names of models, but hokku pull USER/REPO gets one from the Hugging "
                  "Face Hub",
                  name);
        return NULL;
    }
    char *path = strdup(name);
    if (!path)
        error_oom(err, "the model's path", strlen(name));
    return path;
}

// What no repository's name can be is said of the option, which the configuration may have.
static char *of_the_hub(const struct options *o, const struct cancel *cancel, struct error *err)
{
    if (!hub_name_check(o->hf_repo, err)) {
        error_prefix(err, "--hf-repo");
        return NULL;
    }
    return download(o, o->hf_repo, cancel, err);
}

char *model_file(const struct options *o, const struct cancel *cancel, struct error *err)
{
    if (o->hf_repo)
        return of_the_hub(o, cancel, err);
    return o->model ? named(o, "-m: ", o->model, cancel, err) : shipped_model(err);
}

char *model_named(const struct options *o, const char *name, const struct cancel *cancel,
                  struct error *err)
{
    return named(o, "", name, cancel, err);
}
