"""Why a rule of Spyre broke, in the terms of its scheduler."""
