"""Dates of the Gregorian calendar and days since 1970, by eras of 400 years that begin on 1 March 0000."""

from libc.stdint cimport int64_t


cdef struct Civil:
    unsigned int year
    unsigned int month
    unsigned int day


cdef inline Civil civil_of(int64_t day) noexcept nogil:
    """The date of a day since 1970; the day is after 1 March 0000."""
    cdef Civil civil
    cdef int64_t era
    cdef unsigned int of_era, year_of_era, of_year, month
    day += 719468
    era = day // 146097
    of_era = <unsigned int>(day - era * 146097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * of_year + 2) // 153
    civil.year = <unsigned int>(year_of_era + era * 400) + (1 if month >= 10 else 0)
    civil.month = month + 3 if month < 10 else month - 9
    civil.day = of_year - (153 * month + 2) // 5 + 1
    return civil


cdef inline int64_t days_of(Civil civil) noexcept nogil:
    """The day since 1970 of a date from year 1 on."""
    cdef int64_t year = <int64_t>civil.year - (1 if civil.month <= 2 else 0)
    cdef int64_t era = year // 400
    cdef unsigned int year_of_era = <unsigned int>(year - era * 400)
    cdef unsigned int month = civil.month - 3 if civil.month > 2 else civil.month + 9
    cdef unsigned int of_year = (153 * month + 2) // 5 + civil.day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year - 719468
