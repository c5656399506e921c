/* What a guest declares of its rows: ARCADE_DECLARE({JSON}) makes the section arkml.spec of it. */
#define ARCADE_TEXT(...) #__VA_ARGS__
#define ARCADE_LITERAL(...) ARCADE_TEXT(__VA_ARGS__)
#define ARCADE_SPEC(...)                                                                         \
    __asm__(".section .custom_section.arkml.spec,\"\",@\n.ascii " ARCADE_TEXT(__VA_ARGS__) "\n")
/* A string for the assembler, whose quotes are written twice: in JSON, and around it. */
#define ARCADE_DECLARE(...) ARCADE_SPEC_OF(ARCADE_LITERAL(__VA_ARGS__))
#define ARCADE_SPEC_OF(text) ARCADE_SPEC(text)
