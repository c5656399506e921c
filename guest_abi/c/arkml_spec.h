/*
 * What the rows of a guest mean, declared in its section arkml.spec, where the host looks for it.
 * Use one of these, once, outside of functions.
 */
#ifndef ARKML_SPEC_H
#define ARKML_SPEC_H

#define ARKML_SPEC_SECTION ".section .custom_section.arkml.spec,\"\",@\n"

/* Declares it by a file of JSON. */
#define SPEC(file) __asm__(ARKML_SPEC_SECTION ".incbin \"" file "\"\n")

/*
 * Declares it by JSON in the source: SPEC_TEXT({"behaviors": {...}}). A name outside of quotes is
 * what it was defined as, also `true`, of which stdbool.h makes a 1 unless it is undefined first.
 */
#define SPEC_TEXT(...) ARKML_SPEC_STRING(ARKML_SPEC_LITERAL(__VA_ARGS__))
/* The quotes of JSON are written twice: for C, and in the string of the assembler. */
#define ARKML_SPEC_LITERAL(...) #__VA_ARGS__
#define ARKML_SPEC_STRING(literal) ARKML_SPEC_ASCII(literal)
#define ARKML_SPEC_ASCII(literal) __asm__(ARKML_SPEC_SECTION ".ascii " #literal "\n")

#endif
