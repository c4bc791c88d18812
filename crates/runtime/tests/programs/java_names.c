/* The agent's texts (java/names.c): names of classes and files as the virtual machine has them, in modified UTF-8, for the recorder. */
#include "../../java/names.c"

#include "truth.h"

#include <stdio.h>

static const char *text(const char *modified, size_t room) {
    static char made[NAME_BYTES];
    CHECK(np_names_text(modified, made, room) == strlen(made) && strlen(made) < room);
    return made;
}

static const char *class_of(const char *signature) {
    static char made[NAME_BYTES];
    class_name(signature, made);
    return made;
}

static void characters_stay_whole(void) {
    CHECK(strcmp(text("plain", 16), "plain") == 0 && strcmp(text("plain", 4), "pla") == 0 && strcmp(text("", 1), "") == 0);
    CHECK(strcmp(text("K\xc3\xb6ln", 16), "K\xc3\xb6ln") == 0);
    CHECK(strcmp(text("K\xc3\xb6ln", 3), "K") == 0); /* no room for half of it */
    CHECK(strcmp(text("\xe2\x82\xac", 3), "") == 0);
    /* U+1F600: two surrogates in modified UTF-8, four bytes in UTF-8. */
    CHECK(strcmp(text("a\xed\xa0\xbd\xed\xb8\x80z", 16), "a\xf0\x9f\x98\x80z") == 0);
    CHECK(strcmp(text("a\xed\xa0\xbd\xed\xb8\x80z", 5), "a") == 0);
    /* What is damaged ends nothing, and is read no further than it goes. */
    CHECK(strcmp(text("\xed\xa0\xbdx", 16), "\xed\xa0\xbdx") == 0 && strcmp(text("x\xe2\x82", 16), "x\xe2\x82") == 0);
}

static void classes_have_names(void) {
    CHECK(strcmp(class_of("[[Ljava/lang/String;"), "java.lang.String[][]") == 0 && strcmp(class_of("[D"), "double[]") == 0);
    CHECK(strcmp(class_of("La/B$$Lambda$14/123456;"), "a.B$$Lambda") == 0);
    CHECK(strcmp(class_of("La/B$$Lambda.0x00007f0001000400;"), "a.B$$Lambda") == 0);
    CHECK(strcmp(class_of("Ljava/lang/invoke/LambdaForm$MH.0x00007f0001000400;"), "java.lang.invoke.LambdaForm$MH") == 0);
    char signature[1000] = "[L";
    while (strlen(signature) < 990) strcat(signature, "\xe2\x82\xac");
    const char *name = class_of(signature);
    CHECK(strlen(name) == CLASS_BYTES_MAX / 3 * 3 + 2 && strcmp(name + strlen(name) - 5, "\xe2\x82\xac[]") == 0);
    char deep[255 + sizeof signature];
    memset(deep, '[', 255);
    strcpy(deep + 255, signature + 1);
    name = class_of(deep);
    CHECK(strlen(name) < NAME_BYTES && strcmp(name + strlen(name) - 2, "[]") == 0);
}

static void files_have_folders(void) {
    char class[NAME_BYTES], file[NAME_BYTES];
    place_names("La/b/C$D;", "C.java", class, file);
    CHECK(strcmp(class, "a.b.C$D") == 0 && strcmp(file, "a/b/C.java") == 0);
    place_names("LC;", "C.java", class, file);
    CHECK(strcmp(file, "C.java") == 0);
    place_names("LC;", NULL, class, file);
    CHECK(strcmp(file, "") == 0);
    char deep[NAME_BYTES + 40] = "L";
    while (strlen(deep) < NAME_BYTES) strcat(deep, "folder/");
    strcat(deep, "C;");
    place_names(deep, "C.java", class, file);
    CHECK(strcmp(file, "C.java") == 0); /* a path that is too long keeps the file's name */
}

int main(void) {
    characters_stay_whole();
    classes_have_names();
    files_have_folders();
    return 0;
}
