"""How each system behaves: executable reference models, pure and small.

What is shared sits here (`scenario`, `observation`, `target`, `systems`); each system has a
package of its own name. Nothing below reads a file, a clock or a source of randomness.
"""
