// Which device is taken, with devices that only say what they are.
#include "test.h"

#include "engine/device.h"

static int n_devices, n_usable_from;

static int count(char *why, size_t n)
{
    snprintf(why, n, "the driver is silent");
    return n_devices;
}

static bool usable(int index, char *why, size_t n)
{
    snprintf(why, n, "device %d is old", index);
    return index >= n_usable_from;
}

static void every_wish_with_every_machine(void **state)
{
    (void)state;
    static const struct {
        const char *want;
        int n, usable_from;
        int index; // of CUDA; -1: the CPU, -2: refused
        const char *words;
        bool no_gpu;
    } cases[] = {
        {"cpu", 2, 0, -1, "", false},
        {"auto", 2, 0, 0, "", false},
        {"auto", 3, 2, 2, "", false},
        {"auto", 2, 2, -1, "device 1 is old: running on the CPU", false},
        {"auto", 0, 0, -1, "no NVIDIA GPU: running on the CPU", true},
        {"auto", -1, 0, -1, "the driver is silent: running on the CPU", false},
        {"cuda", 2, 0, 0, "", false},
        {"cuda", 0, 0, -2, "the driver is silent", false},
        {"cuda", 2, 1, -2, "device 0 is old", false}, // by name: never another one
        {"cuda:1", 2, 0, 1, "", false},
        {"cuda:1", 2, 2, -2, "device 1 is old", false},
        {"cuda:2", 2, 0, -2, "found 2 CUDA devices, numbered from 0", false},
        {"cuda:1", 1, 0, -2, "found 1 CUDA device, numbered from 0", false},
        {"cuda:1024", 2000, 0, -2, "expected auto, cuda, cuda:N or cpu", false},
        {"cuda:1023", 2000, 0, 1023, "", false},
        {"cuda:-1", 2, 0, -2, "expected auto", false},
        {"cuda:", 2, 0, -2, "expected auto", false},
        {"cuda:1x", 2, 0, -2, "expected auto", false},
        {"gpu", 2, 0, -2, "expected auto", false},
    };
    const struct engine_backend cpu = {0}, cuda = {.count = count, .usable = usable};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device_choice d;
        struct error err = {0};
        n_devices = cases[i].n;
        n_usable_from = cases[i].usable_from;
        bool ok = device_choose(cases[i].want, &cpu, &cuda, &d, &err);
        if (ok != (cases[i].index != -2))
            fail_msg("%s of %d: %s", cases[i].want, n_devices, err.text);
        if (!ok) {
            assert_non_null(strstr(err.text, cases[i].words));
            continue;
        }
        assert_ptr_equal(d.backend, cases[i].index >= 0 ? &cuda : &cpu);
        if (cases[i].index >= 0)
            assert_int_equal(d.index, cases[i].index);
        assert_string_equal(d.note, cases[i].words);
        assert_int_equal(d.no_gpu, cases[i].no_gpu);
        // a machine without a GPU is news in a chat only; a GPU that cannot be used always is
        bool note = *d.note != '\0';
        assert_int_equal(device_note_due(&d, false, false), note && !d.no_gpu);
        assert_int_equal(device_note_due(&d, true, false), note);
        assert_int_equal(device_note_due(&d, false, true), note);
    }
    // a program without CUDA
    struct device_choice d;
    struct error err = {0};
    assert_true(device_choose("auto", &cpu, NULL, &d, &err));
    assert_ptr_equal(d.backend, &cpu);
    assert_string_equal(d.note, "");
    assert_false(device_choose("cuda", &cpu, NULL, &d, &err));
    assert_non_null(strstr(err.text, "built without CUDA"));
}

static void several_devices_for_one_model(void **state)
{
    (void)state;
    static const struct {
        const char *want;
        int n, usable_from;
        uint32_t devices; // UINT32_MAX: refused; 0: one, index
        int index;
        const char *words;
    } cases[] = {
        {"0,1", 2, 0, 3, 0, ""},
        {"1,0", 2, 0, 3, 0, ""},
        {"0,2,5", 8, 0, 0x25, 0, ""},
        {"all", 4, 0, 0xF, 0, ""},
        {"all", 1, 0, 0, 0, ""},
        {"1", 2, 0, 0, 1, ""},
        {"0,1,2,3,4,5,6,7", 8, 0, 0xFF, 0, ""},
        {"0,1,2,3,4,5,6,7,8", 9, 0, UINT32_MAX, 0, "9 devices, expected at most 8"},
        {"all", 9, 0, UINT32_MAX, 0, "9 devices, expected at most 8"},
        {"0,2", 2, 0, UINT32_MAX, 0, "--devices 0,2: found 2 CUDA devices, numbered from 0"},
        {"0,1", 2, 1, UINT32_MAX, 0, "--devices 0,1: device 0: device 0 is old"},
        {"0,1", 0, 0, UINT32_MAX, 0, "the driver is silent; --device cpu runs without a GPU"},
        {"", 2, 0, UINT32_MAX, 0, "found \"\", expected all, or 1 to 8 different numbers"},
        {"0,", 2, 0, UINT32_MAX, 0, "expected all"},
        {",0", 2, 0, UINT32_MAX, 0, "expected all"},
        {"0,0", 2, 0, UINT32_MAX, 0, "expected all"},
        {"0 1", 2, 0, UINT32_MAX, 0, "expected all"},
        {"-1", 2, 0, UINT32_MAX, 0, "expected all"},
        {"32", 2, 0, UINT32_MAX, 0, "expected all"},
        {"cuda:1", 2, 0, UINT32_MAX, 0, "expected all"},
    };
    const struct engine_backend cuda = {.count = count, .usable = usable};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device_choice d = {0};
        struct error err = {0};
        n_devices = cases[i].n;
        n_usable_from = cases[i].usable_from;
        const bool ok = devices_choose(cases[i].want, &cuda, &d, &err);
        if (ok != (cases[i].devices != UINT32_MAX) || !strstr(err.text, cases[i].words))
            fail_msg("%s of %d: %s", cases[i].want, n_devices, err.text);
        if (!ok)
            continue;
        assert_ptr_equal(d.backend, &cuda);
        assert_int_equal(d.devices, cases[i].devices);
        assert_int_equal(d.index, cases[i].index);
    }
    struct device_choice d;
    struct error err = {0};
    assert_false(devices_choose("all", NULL, &d, &err));
    assert_non_null(strstr(err.text, "built without CUDA"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_devices_for_one_model),
        cmocka_unit_test(every_wish_with_every_machine),
    };
    return RUN_TESTS("device_choice", tests);
}
