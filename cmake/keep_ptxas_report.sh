#!/bin/sh
# Compiler launcher: runs the command and, when it writes an object (-o X.o), keeps what ptxas said in X.o.ptxas.
# Lines that only inform ("ptxas info", the resource lines below it) stay out of the build log; all others go through.
object=
previous=
for argument in "$@"; do
    [ "$previous" = "-o" ] && object=$argument
    previous=$argument
done
case $object in
    *.o) ;;
    *) exec "$@" ;;
esac
"$@" 2>"$object.ptxas"
status=$?
grep -vE '^ptxas info|bytes stack frame|^\s*$' "$object.ptxas" >&2
exit $status
