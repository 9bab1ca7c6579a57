#!/usr/bin/env python3
"""A text file as a C string. Usage: embed.py FILE NAME OUTPUT"""
import sys

path, name, output = sys.argv[1:]
with open(path, "rb") as source, open(output, "w") as out:
    text = source.read()
    out.write(f"extern const char {name}[];\nconst char {name}[] = {{\n")
    for i in range(0, len(text), 16):
        out.write(" ".join(f"{byte}," for byte in text[i:i + 16]) + "\n")
    out.write("0};\n")
