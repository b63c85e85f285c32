// In the targets, the hash table of a vocabulary has one and the same secret, or no run could be
// repeated: which slots collide is coverage, and coverage steers the fuzzer.
#include <string.h>

int __wrap_getentropy(void *buffer, size_t length);

int __wrap_getentropy(void *buffer, size_t length)
{
    memset(buffer, 0x5A, length);
    return 0;
}
