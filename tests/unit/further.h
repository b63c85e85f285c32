// How far off numbers are, the most of several.
#ifndef HOKKU_TESTS_UNIT_FURTHER_H
#define HOKKU_TESTS_UNIT_FURTHER_H

// The larger of both; NaN where one is: fmax would forget it, a comparison would as soon as another
// number follows.
static inline double further(double off, double d)
{
    return off != off || d <= off ? off : d;
}

#endif
